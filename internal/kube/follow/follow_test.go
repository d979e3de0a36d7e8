package follow

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// nodes is a source whose watches are the given ones, one after the other, and
// then fail.
type nodes struct {
	listing error
	watches []watch.Interface
	listed  int
}

func (n *nodes) List(context.Context, metav1.ListOptions) (*corev1.NodeList, error) {
	n.listed++
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "one"}}}}, n.listing
}

func (n *nodes) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	if len(n.watches) == 0 {
		return nil, apierrors.NewServiceUnavailable("no more watches")
	}
	next := n.watches[0]
	n.watches = n.watches[1:]
	return next, nil
}

func options(log *bytes.Buffer) Options[*corev1.Node] {
	return Options[*corev1.Node]{What: "the Node one", Name: "one", Log: NewLog(slog.New(slog.NewTextHandler(log, nil)))}
}

func TestObjects_listsAgainAfterAnErrorOfTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		expired := watch.NewRaceFreeFake()
		status := apierrors.NewResourceExpired("too old").ErrStatus
		expired.Error(&status)
		seen := 0
		source := &nodes{watches: []watch.Interface{expired}}
		err := Objects(t.Context(), source, options(&bytes.Buffer{}), func(context.Context, map[string]*corev1.Node) (bool, error) {
			seen++
			return seen == 2, nil
		})
		if err != nil || source.listed != 2 {
			t.Errorf("%v after %d lists", err, source.listed)
		}
	})
}

func TestObjects_backsOffWhileTheAPIServerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var log bytes.Buffer
		source := &nodes{listing: errors.New("connection refused")}
		err := Objects(ctx, source, options(&log), func(context.Context, map[string]*corev1.Node) (bool, error) { return true, nil })
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%v", err)
		}
		if source.listed < 25 || source.listed > 60 || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%d attempts in an hour; the log:\n%s", source.listed, log.String())
		}
	})
}

func TestObjects_filters(t *testing.T) {
	events := watch.NewRaceFreeFake()
	labelled := func(name, label string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"keep": label}}}
	}
	events.Add(labelled("two", "yes"))
	events.Add(labelled("three", "no"))
	events.Modify(labelled("two", "no"))
	events.Delete(labelled("three", "no"))
	events.Add(labelled("four", "yes"))
	o := options(&bytes.Buffer{})
	o.Keep = func(n *corev1.Node) bool { return n.Labels["keep"] == "yes" }
	var counts []int
	err := Objects(t.Context(), &nodes{watches: []watch.Interface{events}}, o, func(_ context.Context, kept map[string]*corev1.Node) (bool, error) {
		counts = append(counts, len(kept))
		_, last := kept["four"]
		return last, nil
	})
	if err != nil || len(counts) != 4 || counts[0] != 0 || counts[1] != 1 || counts[2] != 0 || counts[3] != 1 {
		t.Errorf("%v, shown %v; want 0 1 0 1: what was never kept changes nothing", err, counts)
	}
}

func TestLog_logsEachKindOfFailureOnce(t *testing.T) {
	var log bytes.Buffer
	l := NewLog(slog.New(slog.NewTextHandler(&log, nil)))
	kind := schema.GroupResource{Resource: "nodes"}
	for range 3 {
		l.Failure(t.Context(), "the Node one", apierrors.NewForbidden(kind, "one", errors.New("RBAC")))
		l.Failure(t.Context(), "the Node one", apierrors.NewServiceUnavailable("down"))
		l.Failure(t.Context(), "the CSINode one", apierrors.NewServiceUnavailable("down"))
	}
	if lines := strings.Count(log.String(), "\n"); lines != 3 || strings.Count(log.String(), "lacks a right") != 1 {
		t.Errorf("%s", log.String())
	}
}
