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

const driver = "ebs.csi.aws.com"

// nodes answers one after the other, and then again with the last.
type nodes struct {
	answers []any // *corev1.Node or error
	asked   int
}

func (n *nodes) Get(context.Context, string, metav1.GetOptions) (*corev1.Node, error) {
	answer := n.answers[min(n.asked, len(n.answers)-1)]
	n.asked++
	if err, is := answer.(error); is {
		return nil, err
	}
	node, _ := answer.(*corev1.Node)
	return node, nil
}

func node(provider string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{}}}
	n.Spec.ProviderID = provider
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		n.Labels[key] = value
	}
	return n
}

func TestRead_takesTheInstanceFromTheProviderAndTheRestFromLabels(t *testing.T) {
	const provider = "aws:///eu-central-1a/i-0123456789abcdef0"
	for name, c := range map[string]struct {
		node *corev1.Node
		want Node
	}{
		"all labels": {
			node(provider, "node.kubernetes.io/instance-type=m5.large", "topology.kubernetes.io/region=eu-central-1", "topology.kubernetes.io/zone=eu-central-1b"),
			Node{"i-0123456789abcdef0", "m5.large", "eu-central-1", "eu-central-1b", -1, -1},
		},
		"the zone of the provider":  {node(provider), Node{"i-0123456789abcdef0", "", "", "eu-central-1a", -1, -1}},
		"the driver's own zone":     {node("aws:///i-01234567", "topology.ebs.csi.aws.com/zone=x1"), Node{"i-01234567", "", "", "x1", -1, -1}},
		"a named provider":          {node("aws://cloud/us-east-1a/i-01234567"), Node{"i-01234567", "", "", "us-east-1a", -1, -1}},
		"what a labeller has found": {node(provider, driver+"/enis-count=3", driver+"/non-csi-ebs-volumes-count=2"), Node{"i-0123456789abcdef0", "", "", "eu-central-1a", 3, 2}},
	} {
		if got, err := Read(t.Context(), &nodes{answers: []any{c.node}}, "one", driver); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestRead_waitsUntilTheCloudsControllerHasFilledTheNodeIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nodes{answers: []any{node(""), errors.New("connection refused"), node("aws:///us-east-1a/i-01234567")}}
		got, err := Read(t.Context(), n, "one", driver)
		if err != nil || got.InstanceID != "i-01234567" || n.asked != 3 {
			t.Errorf("%+v, %v after %d looks", got, err, n.asked)
		}
	})
}

func TestRead_endsWithItsContextAndSaysWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		want   string
	}{
		"no provider":                {node(""), "spec.providerID is empty"},
		"another cloud":              {node("gce://project/zone/instance"), "none of an EC2 instance"},
		"fargate":                    {node("aws:///us-east-1a/fargate-ip-10-0-0-1"), "none of an EC2 instance"},
		"no zone":                    {node("aws:///i-01234567"), "no label topology.kubernetes.io/zone"},
		"a label that is wrong":      {node("aws:///a/i-01234567", driver+"/enis-count=many"), "is no number"},
		"an API server that is down": {errors.New("connection refused"), "connection refused"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, err := Read(ctx, &nodes{answers: []any{c.answer}}, "one", driver)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `Node "one"`) || time.Since(began) != 10*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		})
	}
}

func TestRead_saysAtOnceWhatWaitingDoesNotHeal(t *testing.T) {
	kind := schema.GroupResource{Resource: "nodes"}
	for want, err := range map[string]error{
		"--node-name":            apierrors.NewNotFound(kind, "one"),
		"the right to get nodes": apierrors.NewForbidden(kind, "one", errors.New("RBAC")),
	} {
		n := &nodes{answers: []any{err}}
		if _, got := Read(t.Context(), n, "one", driver); got == nil || !strings.Contains(got.Error(), want) || n.asked != 1 {
			t.Errorf("%v after %d looks; want %q in it", got, n.asked, want)
		}
	}
	if _, err := Read(t.Context(), &nodes{}, "", driver); err == nil || !strings.Contains(err.Error(), "$NODE_NAME") {
		t.Errorf("without a name: %v", err)
	}
}
