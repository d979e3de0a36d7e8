package claim

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestNodeLabel_selectsTheObjectsOfOneNode: names of nodes have up to 253 characters, and
// values of labels 63.
func TestNodeLabel_selectsTheObjectsOfOneNode(t *testing.T) {
	long := strings.Repeat("a.", 31) + "b" // of 63 characters
	nodes := []string{"n1", "ip-10-0-0-1.ec2.internal", long, long + "c", strings.Repeat("x.", 126) + "y", strings.Repeat("x.", 126) + "z", "not a node's name"}
	for _, node := range nodes {
		if problems := validation.IsValidLabelValue(NodeLabelValue(node)); len(problems) > 0 {
			t.Errorf("%s: %v", node, problems)
		}
		if value := NodeLabelValue(node); (value == node) != (len(validation.IsValidLabelValue(node)) == 0) {
			t.Errorf("%s has the label %s", node, value)
		}
		selector, err := k8slabels.Parse(NodeSelector(NodeLabel, node))
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range nodes {
			if selected := selector.Matches(k8slabels.Set{NodeLabel: NodeLabelValue(other)}); selected != (other == node) {
				t.Errorf("the selector of %s selects objects of %s: %t", node, other, selected)
			}
		}
		for value, shown := range map[string]string{AnyNode: "any node", UnknownNode: "a node that is not known yet"} {
			if !selector.Matches(k8slabels.Set{NodeLabel: value}) {
				t.Errorf("%s does not select objects of %s", selector, shown)
			}
		}
		if selector.Matches(k8slabels.Set{}) {
			t.Errorf("%s selects objects without the label", selector)
		}
	}
}

func TestSelectedNode(t *testing.T) {
	for name, row := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"none":       {nil, ""},
		"selected":   {map[string]string{SelectedNodeAnnotation: "n1"}, "n1"},
		"by alpha":   {map[string]string{AlphaSelectedNodeAnnotation: "n1"}, "n1"},
		"by both":    {map[string]string{SelectedNodeAnnotation: "n1", AlphaSelectedNodeAnnotation: "n2"}, "n1"},
		"removed":    {map[string]string{SelectedNodeAnnotation: ""}, ""},
		"by another": {map[string]string{ProvisionerAnnotation: "n1"}, ""},
	} {
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
		if got := SelectedNode(pvc); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
	}
}
