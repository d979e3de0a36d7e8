package claim

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// NodeAffinityAnnotation on a VolumeSnapshotContent says from where the snapshot can be
// restored. Its value is that of the field spec.nodeAffinity of KEP-5943, a list of
// TopologySelectorTerm as JSON, which the CRDs do not have yet.
const NodeAffinityAnnotation = "holdfast.dev/node-affinity"

// SnapshotAffinity returns the value of NodeAffinityAnnotation for the accessible_topology
// of a snapshot, "" if the snapshot can be restored everywhere.
func SnapshotAffinity(topologies []*csi.Topology) (string, error) {
	var terms []corev1.TopologySelectorTerm
	for _, topology := range topologies {
		var term corev1.TopologySelectorTerm
		for _, segment := range NewTerm(topology.GetSegments()) {
			term.MatchLabelExpressions = append(term.MatchLabelExpressions,
				corev1.TopologySelectorLabelRequirement{Key: segment.Key, Values: []string{segment.Value}})
		}
		if len(term.MatchLabelExpressions) == 0 {
			return "", nil
		}
		terms = append(terms, term)
	}
	if len(terms) == 0 {
		return "", nil
	}
	text, err := json.Marshal(terms)
	return string(text), err
}

// SnapshotTerms returns the Terms from which a snapshot can be restored, by the annotations
// of its content; nil if it can be restored everywhere, or its driver has not said.
func SnapshotTerms(annotations map[string]string) ([]Term, error) {
	text, known := annotations[NodeAffinityAnnotation]
	if !known {
		return nil, nil
	}
	var selectors []corev1.TopologySelectorTerm
	err := json.Unmarshal([]byte(text), &selectors)
	var terms []Term
	if err == nil {
		terms, err = FlattenAllowed(selectors)
	}
	if err == nil && len(terms) == 0 {
		err = fmt.Errorf("%q allows no node", text)
	}
	if err != nil {
		return nil, fmt.Errorf("annotation %s: %w", NodeAffinityAnnotation, err)
	}
	return terms, nil
}

// Restorable reports whether a snapshot with these Terms can be restored on a node.
func Restorable(terms []Term, node Term) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(t Term) bool { return t.Within(node) })
}

// Restrict returns the part of a requirement in which a snapshot with these Terms can be
// restored, in the requirement's order; nil if there is none. Without a requirement it
// returns the Terms themselves. It does not change the requirement.
func Restrict(requirement *csi.TopologyRequirement, terms []Term) *csi.TopologyRequirement {
	if len(terms) == 0 {
		return requirement
	}
	if requirement == nil {
		list := NewTerms(terms).From(0)
		return &csi.TopologyRequirement{Requisite: list, Preferred: list}
	}
	narrowed := &csi.TopologyRequirement{
		Requisite: restrict(requirement.GetRequisite(), terms), Preferred: restrict(requirement.GetPreferred(), terms),
	}
	if len(narrowed.GetRequisite())+len(narrowed.GetPreferred()) == 0 {
		return nil
	}
	return narrowed
}

// restrict intersects each topology with the Terms.
func restrict(topologies []*csi.Topology, terms []Term) []*csi.Topology {
	var kept []*csi.Topology
	for _, topology := range topologies {
		if Restorable(terms, NewTerm(topology.GetSegments())) {
			kept = append(kept, topology)
			continue
		}
		for _, term := range terms {
			if both := join(topology.GetSegments(), term); both != nil {
				kept = append(kept, &csi.Topology{Segments: both})
			}
		}
	}
	return kept
}

// join returns the segments of a topology and a Term together; nil if they contradict
// each other, since no node has both.
func join(segments map[string]string, term Term) map[string]string {
	both := term.Map()
	for key, value := range segments {
		if other, given := both[key]; given && other != value {
			return nil
		}
		both[key] = value
	}
	return both
}
