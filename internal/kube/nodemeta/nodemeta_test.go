package nodemeta

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// nodes answers one after the other, and then again with the last.
type nodes struct {
	answers []any // *corev1.Node or error
	asked   int
}

func (n *nodes) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	answer := n.answers[min(n.asked, len(n.answers)-1)]
	n.asked++
	if err, ok := answer.(error); ok {
		return nil, err
	}
	node, _ := answer.(*corev1.Node)
	return node, nil
}

func node(provider string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{corev1.LabelTopologyZone: "eu-central-1a"}}}
	n.Spec.ProviderID = provider
	return n
}

const provider = "aws:///eu-central-1a/i-0123456789abcdef0"

func TestNode_isReadOnce(t *testing.T) {
	n := &nodes{answers: []any{node(provider)}}
	id, labels, err := Reader{Nodes: n, Name: "one"}.Node(t.Context())
	if err != nil || id != provider || labels[corev1.LabelTopologyZone] != "eu-central-1a" || n.asked != 1 {
		t.Errorf("%q, %v, %v after %d looks", id, labels, err, n.asked)
	}
}

func TestNode_waitsForTheCloudsController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{answers: []any{node(""), errors.New("connection refused"), node(provider)}}
		if id, _, err := (Reader{Nodes: n, Name: "one"}).Node(t.Context()); err != nil || id != provider || n.asked != 3 {
			t.Errorf("%q, %v after %d looks", id, err, n.asked)
		}
	})
}

func TestNode_endsWithItsContextAndNamesTheCause(t *testing.T) {
	for want, answer := range map[string]any{"spec.providerID is empty": node(""), "connection refused": errors.New("connection refused")} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, _, err := Reader{Nodes: &nodes{answers: []any{answer}}, Name: "one"}.Node(ctx)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `Node "one"`) || time.Since(began) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	}
}

func TestNode_failsAtOnceOnFinalErrors(t *testing.T) {
	kind := schema.GroupResource{Resource: "nodes"}
	for want, err := range map[string]error{
		"--node-name":            apierrors.NewNotFound(kind, "one"),
		"the right to get nodes": apierrors.NewForbidden(kind, "one", errors.New("RBAC")),
	} {
		n := &nodes{answers: []any{err}}
		if _, _, got := (Reader{Nodes: n, Name: "one"}).Node(t.Context()); got == nil || !strings.Contains(got.Error(), want) || n.asked != 1 {
			t.Errorf("%v after %d looks; want %q in it", got, n.asked, want)
		}
	}
	if _, _, err := (Reader{Nodes: &nodes{}}).Node(t.Context()); err == nil || !strings.Contains(err.Error(), "$NODE_NAME") {
		t.Errorf("without a name: %v", err)
	}
}
