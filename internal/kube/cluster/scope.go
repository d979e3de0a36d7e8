package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Scope says which objects this process acts on: all of its driver's, or those
// of one node, where each node runs the controllers for itself.
type Scope struct {
	// Node is the name of the node; "" means all.
	Node string
	// Segments are the node's accessible_topology, from NodeGetInfo.
	Segments map[string]string
}

// Central tells whether the process acts on the objects of all nodes.
func (s Scope) Central() bool { return s.Node == "" }

// OwnsVolume reports whether a volume is this process's to change by its object
// alone: in a node's scope, one whose affinity the node fulfils.
func (s Scope) OwnsVolume(volume *corev1.PersistentVolume) bool {
	if s.Central() {
		return true
	}
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		if s.fulfils(term) {
			return true
		}
	}
	return false
}

// Unplaced reports whether nothing says on which node a volume is, where each node
// acts for itself: only the drivers can tell (Env.OwnsVolume).
func (s Scope) Unplaced(volume *corev1.PersistentVolume) bool {
	return !s.Central() && (volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil)
}

// fulfils follows the API's rule: an empty term matches nothing, and all
// expressions of a term must hold.
func (s Scope) fulfils(term corev1.NodeSelectorTerm) bool {
	if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
		return false
	}
	return holds(term.MatchExpressions, s.Segments) && holds(term.MatchFields, map[string]string{"metadata.name": s.Node})
}

func holds(expressions []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, e := range expressions {
		requirement, err := labels.NewRequirement(e.Key, operator(e.Operator), e.Values)
		if err != nil || !requirement.Matches(set) {
			return false
		}
	}
	return true
}

func operator(o corev1.NodeSelectorOperator) selection.Operator {
	switch o {
	case corev1.NodeSelectorOpIn:
		return selection.In
	case corev1.NodeSelectorOpNotIn:
		return selection.NotIn
	case corev1.NodeSelectorOpExists:
		return selection.Exists
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan
	case corev1.NodeSelectorOpLt:
		return selection.LessThan
	}
	return selection.Operator(o) // refused by labels.NewRequirement
}
