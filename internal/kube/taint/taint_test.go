package taint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driver     = "ebs.csi.aws.com"
	name       = "one"
	instanceID = "i-0123456789abcdef0"
)

func node(keys ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, key := range keys {
		key, effect, _ := strings.Cut(key, ":")
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	return n
}

func csiNode(driverName, id string, count int32) *storagev1.CSINode {
	d := storagev1.CSINodeDriver{Name: driverName, NodeID: id}
	if count > 0 {
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{d}}}
}

// world is an API server with one remover.
type world struct {
	*apiserver.Cluster
	t   *testing.T
	log *lines
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	return &world{Cluster: apiserver.New(t, csidriver.New(driver), objects...), t: t, log: &lines{}}
}

// run removes until the returned function is called.
func (w *world) run() (stop func()) {
	r := New(Options{Client: w.Env.Core, Node: name, Driver: driver, NodeID: instanceID, Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) taints() (keys []string) {
	w.t.Helper()
	n, err := w.Core.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, taint := range n.Spec.Taints {
		keys = append(keys, taint.Key+":"+string(taint.Effect))
	}
	return keys
}

func (w *world) has(want ...string) func() error {
	return func() error {
		if got := w.taints(); !slices.Equal(got, want) {
			return fmt.Errorf("taints %v; want %v", got, want)
		}
		return nil
	}
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// The driver's own taint is removed in all its effects; other keys stay.
func TestRun_removesTheDriversTaintsAndNoOthers(t *testing.T) {
	w := newWorld(t, node("a/b:NoSchedule", driver+Suffix+":NoSchedule", "efs.csi.aws.com/agent-not-ready:NoExecute", driver+Suffix+":NoExecute"),
		csiNode(driver, instanceID, 25))
	w.run()
	w.Eventually(w.has("a/b:NoSchedule", "efs.csi.aws.com/agent-not-ready:NoExecute"))
}

// The taint stays until the scheduler knows the node's volume limit.
func TestRun_waitsForTheRegistrationOfThisNode(t *testing.T) {
	const key = driver + Suffix + ":NoSchedule"
	for what, before := range map[string]*storagev1.CSINode{
		"no CSINode":                        nil,
		"another driver":                    csiNode("efs.csi.aws.com", instanceID, 25),
		"no limit":                          csiNode(driver, instanceID, 0),
		"another instance of the same name": csiNode(driver, "i-0fedcba9876543210", 25),
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, node(key))
			if before != nil {
				w.Add(before)
			}
			w.run()
			w.Never(100*time.Millisecond, w.has(key))
			w.Put(csiNode(driver, instanceID, 25))
			w.Eventually(w.has())
		})
	}
}

func TestRun_removesATaintThatComesAfterTheRegistration(t *testing.T) {
	w := newWorld(t, node(), csiNode(driver, instanceID, 25))
	w.run()
	w.Never(50*time.Millisecond, w.has())
	w.Put(node("karpenter.sh/x:NoSchedule", driver+Suffix+":NoSchedule"))
	w.Eventually(w.has("karpenter.sh/x:NoSchedule"))
}

// The list of taints changes between the read and the patch: a removal by index would
// remove another taint.
func TestRun_doesNotRemoveATaintThatMovedToTheIndex(t *testing.T) {
	const other = "a/b:NoSchedule"
	w := newWorld(t, node(driver+Suffix+":NoSchedule"), csiNode(driver, instanceID, 25))
	moved := sync.OnceFunc(func() { w.Put(node(other, driver+Suffix+":NoSchedule")) })
	w.React("patch", "nodes", func(apiserver.Request) error { moved(); return nil })
	w.run()
	w.Eventually(w.has(other))
}

// What a node watches must not grow with the cluster (docs/reference/ebs.md).
func TestRun_watchesThisNodesObjectsOnly(t *testing.T) {
	w := newWorld(t, node(driver+Suffix+":NoSchedule"))
	var mu sync.Mutex
	var asked []string
	for _, verb := range []string{"list", "watch"} {
		w.React(verb, "*", func(q apiserver.Request) error {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, verb+" "+q.Resource+" "+q.Only())
			return nil
		})
	}
	w.run()
	w.Never(50*time.Millisecond, w.has(driver+Suffix+":NoSchedule"))
	w.Put(csiNode(driver, instanceID, 25))
	w.Eventually(w.has())
	mu.Lock()
	defer mu.Unlock()
	want := []string{"list csinodes one", "watch csinodes one", "list nodes one", "watch nodes one"}
	if len(asked) > len(want) || !slices.Equal(asked, want[:len(asked)]) {
		t.Errorf("asked for %v; want %v", asked, want)
	}
}

func TestRun_continuesAfterTheEndOfAWatch(t *testing.T) {
	w := newWorld(t, node(driver+Suffix+":NoSchedule"))
	w.run()
	time.Sleep(50 * time.Millisecond)
	w.BreakWatches()
	w.Put(csiNode(driver, instanceID, 25))
	w.Eventually(w.has())
}

// forbidding is an API server that rejects changes of nodes until granted is set.
func forbidding(granted *atomic.Bool) *fake.Clientset {
	clients := fake.NewClientset(node(driver+Suffix+":NoSchedule"), csiNode(driver, instanceID, 25))
	clients.PrependReactor("patch", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		return !granted.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, name, errors.New("RBAC says no"))
	})
	return clients
}

// A missing right is logged once, however long it is missing, and does not end the
// process. When the right is granted, the taint is removed (docs/reference/ebs.md).
func TestRun_logsAMissingRightOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var granted atomic.Bool
		clients, log := forbidding(&granted), &lines{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			New(Options{Client: apiserver.Narrow(clients), Node: name, Driver: driver, NodeID: instanceID, Logger: slog.New(slog.NewTextHandler(log, nil))}).Run(ctx)
		}()
		time.Sleep(24 * time.Hour)
		if n := log.count("lacks a right"); n != 1 || log.count("\n") != 1 {
			t.Errorf("logged %d times:\n%s", n, log.text.String())
		}
		granted.Store(true)
		<-done
		n, err := clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(n.Spec.Taints) != 0 {
			t.Errorf("taints %v, %v", n.Spec.Taints, err)
		}
	})
}

func TestRun_endsWhenTheNodeIsOldEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		New(Options{Client: apiserver.Narrow(fake.NewClientset(node(), csiNode(driver, instanceID, 25))), Node: name, Driver: driver, NodeID: instanceID,
			Logger: slog.New(slog.DiscardHandler)}).Run(t.Context())
		if took := time.Since(began); took != Window {
			t.Errorf("it ended after %v; want %v", took, Window)
		}
	})
}

func TestRun_endsWithItsContext(t *testing.T) {
	w := newWorld(t)
	stop := w.run()
	time.Sleep(20 * time.Millisecond)
	stop()
}
