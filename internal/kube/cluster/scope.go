package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Scope says which objects this process acts on: all of its driver's, or those
// of one node, where each node runs the controllers for itself.
type Scope struct {
	// Node is the name of the node; "" means all.
	Node string
	// Labelled restricts the process to objects that are labelled for its node: the
	// Set lists and watches no others (Set.OnlyNode), and an elected process labels
	// them (package coordinate).
	Labelled bool
	// Segments are the node's accessible_topology, from NodeGetInfo.
	Segments map[string]string
}

// Central reports whether the process acts on the objects of all nodes.
func (s Scope) Central() bool { return s.Node == "" }

// OwnsVolume reports whether a volume is this process's to change by its object
// alone: in a node's scope, one whose affinity the node fulfils.
func (s Scope) OwnsVolume(volume *corev1.PersistentVolume) bool {
	if s.Central() {
		return true
	}
	affinity := volume.Spec.NodeAffinity
	return affinity != nil && affinity.Required != nil && claim.FitsNode(affinity, s.Node, s.Segments)
}

// Unplaced reports whether nothing says on which node a volume is, where each node
// acts for itself: only the drivers know (Env.OwnsVolume).
func (s Scope) Unplaced(volume *corev1.PersistentVolume) bool {
	return !s.Central() && (volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil)
}
