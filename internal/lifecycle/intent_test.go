package lifecycle_test

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func TestCompletesIntent(t *testing.T) {
	place := func(pairs ...string) *csi.Topology {
		segments := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			segments[pairs[i]] = pairs[i+1]
		}
		return &csi.Topology{Segments: segments}
	}
	list := func(places ...*csi.Topology) []*csi.Topology { return places }
	n1, n2, zone := place("node", "n1", "zone", "a"), place("node", "n2", "zone", "a"), place("zone", "a")
	first := lifecycle.NodeInstance{Node: "n1", ID: "id-1", Segments: n1.GetSegments()}
	second := lifecycle.NodeInstance{Node: "n2", ID: "id-2", Segments: n2.GetSegments()}
	both := &csi.TopologyRequirement{Requisite: list(n1, n2), Preferred: list(n1, n2)}
	only := &csi.TopologyRequirement{Requisite: list(n1), Preferred: list(n1)}
	for _, c := range []struct {
		name        string
		node        string
		requirement *csi.TopologyRequirement
		instances   []string
		first       bool // of node n1, in zone a
		second      bool // of node n2, in zone a
		maySaved    bool
	}{
		{"the selected node", "n1", nil, nil, true, false, false},
		{"the selected node, whatever its place is called now", "n2", only, nil, false, true, false},
		{"a selected node that is lost", "n3", only, nil, false, false, false},
		{"one place", "", only, nil, true, false, false},
		{"one place, named twice", "", &csi.TopologyRequirement{Requisite: list(n2, n2)}, nil, false, true, false},
		{"no place", "", nil, nil, false, false, false},
		{"places of both nodes", "", both, nil, false, false, false},
		{"places of both nodes, sent to the first", "", both, []string{"id-1"}, true, false, false},
		{"places of both nodes, sent to the first, and the PersistentVolume may exist", "", both, []string{"id-1"}, false, false, true},
		{"one place, and the PersistentVolume may exist", "", only, []string{"id-1"}, true, false, true},
		{"the selected node, and the PersistentVolume may exist", "n2", both, []string{"id-1"}, false, true, true},
		{"places of both nodes, sent to the second", "", both, []string{"id-2"}, false, true, false},
		{"places of both nodes, sent to both", "", both, []string{"id-1", "id-2"}, false, false, false},
		{"places of both nodes, sent to an instance without a node service", "", both, []string{""}, false, false, false},
		{"one place, sent to the other node", "", only, []string{"id-2"}, true, false, false},
		{"the selected node, sent to the other one", "n2", both, []string{"id-1"}, false, true, false},
		{"one requisite place, another preferred one", "", &csi.TopologyRequirement{Requisite: list(n1), Preferred: list(n2)}, nil, false, false, false},
		{"one preferred place only", "", &csi.TopologyRequirement{Preferred: list(n1)}, nil, false, false, false},
		{"a place that both nodes are in", "", &csi.TopologyRequirement{Requisite: list(zone)}, nil, false, false, false},
		{"a place without segments", "", &csi.TopologyRequirement{Requisite: list(place())}, nil, false, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := lifecycle.IntentOrigin{Node: c.node, Topology: c.requirement, Instances: c.instances, MaySaved: c.maySaved}
			if got := lifecycle.CompletesIntent(origin, first); got != c.first {
				t.Errorf("node n1 completes it: %t", got)
			}
			if got := lifecycle.CompletesIntent(origin, second); got != c.second {
				t.Errorf("node n2 completes it: %t", got)
			}
		})
	}
	anywhere := &csi.TopologyRequirement{Requisite: list(place())}
	if lifecycle.CompletesIntent(lifecycle.IntentOrigin{Topology: anywhere}, lifecycle.NodeInstance{Node: "n1"}) {
		t.Error("a node without segments completes an intent of any place")
	}
}
