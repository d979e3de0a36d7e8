package lifecycle

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// IntentOrigin is what an intent of a central process says about the place of its
// volume.
type IntentOrigin struct {
	// Node is the node that was selected for the claim; "" with immediate binding.
	Node string
	// Topology is the requirement that was sent to the driver; nil without one.
	Topology *csi.TopologyRequirement
}

// OnlyPlace returns the segments of the one place where a driver may create the
// volume of a request. ok is false if it may choose among several, or anywhere.
func OnlyPlace(requirement *csi.TopologyRequirement) (segments map[string]string, ok bool) {
	requisite := requirement.GetRequisite()
	if len(requisite) == 0 || len(requisite[0].GetSegments()) == 0 {
		return nil, false // preferred terms alone exclude no place
	}
	segments = requisite[0].GetSegments()
	other := func(t *csi.Topology) bool { return !maps.Equal(t.GetSegments(), segments) }
	if slices.ContainsFunc(requisite, other) || slices.ContainsFunc(requirement.GetPreferred(), other) {
		return nil, false
	}
	return segments, true
}

// CompletesIntent reports whether the process of a node with these segments repeats
// the call of an intent that a central process left. The driver of another node could
// create a second volume of the same name. So only the selected node does, or, if none
// was selected, the node whose segments are the only place that the request allows. An
// intent that allows several places is no node's: the volume may be in any of them.
func CompletesIntent(o IntentOrigin, node string, segments map[string]string) bool {
	if o.Node != "" {
		return o.Node == node
	}
	only, ok := OnlyPlace(o.Topology)
	return ok && maps.Equal(only, segments)
}
