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
	only := &csi.TopologyRequirement{Requisite: list(n1), Preferred: list(n1)}
	for _, c := range []struct {
		name        string
		node        string
		requirement *csi.TopologyRequirement
		first       bool // of node n1, in zone a
		second      bool // of node n2, in zone a
	}{
		{"the selected node", "n1", nil, true, false},
		{"the selected node, whatever its place is called now", "n2", only, false, true},
		{"a selected node that is lost", "n3", only, false, false},
		{"one place", "", only, true, false},
		{"one place, named twice", "", &csi.TopologyRequirement{Requisite: list(n2, n2)}, false, true},
		{"no place", "", nil, false, false},
		{"places of both nodes", "", &csi.TopologyRequirement{Requisite: list(n1, n2), Preferred: list(n1, n2)}, false, false},
		{"one requisite place, another preferred one", "", &csi.TopologyRequirement{Requisite: list(n1), Preferred: list(n2)}, false, false},
		{"one preferred place only", "", &csi.TopologyRequirement{Preferred: list(n1)}, false, false},
		{"a place that both nodes are in", "", &csi.TopologyRequirement{Requisite: list(zone)}, false, false},
		{"a place without segments", "", &csi.TopologyRequirement{Requisite: list(place())}, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			origin := lifecycle.IntentOrigin{Node: c.node, Topology: c.requirement}
			if got := lifecycle.CompletesIntent(origin, "n1", n1.GetSegments()); got != c.first {
				t.Errorf("node n1 completes it: %t", got)
			}
			if got := lifecycle.CompletesIntent(origin, "n2", n2.GetSegments()); got != c.second {
				t.Errorf("node n2 completes it: %t", got)
			}
		})
	}
	if lifecycle.CompletesIntent(lifecycle.IntentOrigin{Topology: &csi.TopologyRequirement{Requisite: list(place())}}, "n1", nil) {
		t.Error("a node without segments completes an intent of any place")
	}
}
