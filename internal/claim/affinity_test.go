package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFitsNode(t *testing.T) {
	labels := map[string]string{"zone": "a", "size": "7"}
	one := func(key string, operator corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
	}
	for _, test := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		want  bool
	}{
		{"in", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpIn, "b", "a")}, true},
		{"elsewhere", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpIn, "b")}, false},
		{"a label that is not there", []corev1.NodeSelectorTerm{one("rack", corev1.NodeSelectorOpIn, "")}, false},
		{"not in", []corev1.NodeSelectorTerm{one("rack", corev1.NodeSelectorOpNotIn, "1")}, true},
		{"exists", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpExists)}, true},
		{"does not exist", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpDoesNotExist)}, false},
		{"greater", []corev1.NodeSelectorTerm{one("size", corev1.NodeSelectorOpGt, "6")}, true},
		{"less", []corev1.NodeSelectorTerm{one("size", corev1.NodeSelectorOpLt, "7")}, false},
		{"less than no number", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpLt, "7")}, false},
		{"an alternative", []corev1.NodeSelectorTerm{one("zone", corev1.NodeSelectorOpIn, "b"), one("size", corev1.NodeSelectorOpExists)}, true},
		{"an empty term", []corev1.NodeSelectorTerm{{}}, false},
		{"no term", nil, false},
		{"the node's name", []corev1.NodeSelectorTerm{{MatchFields: one("metadata.name", corev1.NodeSelectorOpIn, "here").MatchExpressions}}, true},
		{"another field", []corev1.NodeSelectorTerm{{MatchFields: one("metadata.uid", corev1.NodeSelectorOpIn, "here").MatchExpressions}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			affinity := &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
			if got := FitsNode(affinity, "here", labels); got != test.want {
				t.Errorf("%v, want %v: %s", got, test.want, DescribeAffinity(affinity))
			}
		})
	}
	if !FitsNode(nil, "here", nil) {
		t.Error("a volume without affinity fits everywhere")
	}
}
