package lifecycle

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// IntentOrigin is what an intent of a central process says about the place of its
// volume.
type IntentOrigin struct {
	// Instances are the instances of the driver to which the request may have been
	// sent, by node_id (NodeGetInfo). One without a node service is "".
	Instances []string
	// Node is the node that was selected for the claim; "" with immediate binding.
	Node string
	// Topology is the requirement that was sent to the driver; nil without one.
	Topology *csi.TopologyRequirement
	// MaySaved reports that a process may have created the PersistentVolume.
	MaySaved bool
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

// NodeInstance is a node that has its own controllers, with the instance of the driver
// that they call.
type NodeInstance struct {
	// Node is the name of the node, and ID its node_id.
	Node, ID string
	// Segments are the node's accessible_topology.
	Segments map[string]string
}

// CompletesIntent reports whether the process of a node repeats the call of an intent
// that a central process left. Another instance of the driver could create a second
// volume of the same name. So only the selected node does, or, if none was selected,
// the node whose segments are the only place that the request allows. If the request
// allows several places, the node does whose instance alone was sent the request: it
// finds what it created, wherever its volumes are. Once the PersistentVolume may exist,
// that is not enough: with shared storage the volume may be on another node. Such an
// intent, one of an instance without a node service, and one that was sent to several
// wait for a central process.
func CompletesIntent(o IntentOrigin, n NodeInstance) bool {
	if o.Node != "" {
		return o.Node == n.Node
	}
	if only, ok := OnlyPlace(o.Topology); ok {
		return maps.Equal(only, n.Segments)
	}
	instance, ok := OnlyInstance(o.Instances)
	return ok && !o.MaySaved && instance == n.ID
}

// OnlyInstance returns the node_id of the one instance of a driver to which a request
// was sent. ok is false if there are several, or if it has no node service.
func OnlyInstance(instances []string) (id string, ok bool) {
	if len(instances) != 1 || instances[0] == "" {
		return "", false
	}
	return instances[0], true
}
