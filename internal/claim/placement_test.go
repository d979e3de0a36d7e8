package claim

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func topologyTexts(topologies []*csi.Topology) string {
	var all []string
	for _, topology := range topologies {
		all = append(all, NewTerm(topology.GetSegments()).String())
	}
	return strings.Join(all, " ")
}

func TestPlacement(t *testing.T) {
	threeZones := func() *Terms { return NewTerms([]Term{term("zone", "a"), term("zone", "b"), term("zone", "c")}) }
	none := func() *Terms { return nil }
	unasked := func() *Terms { panic("the nodes were asked for nothing") }
	allowed := func(zones ...string) []corev1.TopologySelectorTerm {
		return []corev1.TopologySelectorTerm{selector(in("zone", zones...))}
	}
	node := term("rack", "1", "zone", "b")
	for name, c := range map[string]struct {
		Placement
		requisite, preferred, fault string
	}{
		"selected, strict": {Placement: Placement{Node: node, Strict: true, Terms: unasked},
			requisite: "rack=1,zone=b", preferred: "rack=1,zone=b"},
		"selected, strict, in the allowed": {Placement: Placement{Node: node, Strict: true, Allowed: allowed("a", "b"), Terms: unasked},
			requisite: "rack=1,zone=b", preferred: "rack=1,zone=b"},
		"selected, strict, out of the allowed": {Placement: Placement{Node: node, Strict: true, Allowed: allowed("a"), Terms: unasked},
			fault: "rack=1,zone=b"},
		"selected, loose, in the allowed": {Placement: Placement{Node: node, Allowed: allowed("c", "b", "a"), Terms: unasked},
			requisite: "zone=a zone=b zone=c", preferred: "zone=b zone=c zone=a"},
		"selected, loose, out of the allowed": {Placement: Placement{Node: node, Allowed: allowed("a"), Terms: unasked},
			fault: "allowedTopologies"},
		"selected, loose": {Placement: Placement{Node: term("zone", "c"), Terms: threeZones},
			requisite: "zone=a zone=b zone=c", preferred: "zone=c zone=a zone=b"},
		"selected, allowed that say nothing": {Placement: Placement{Node: node, Allowed: []corev1.TopologySelectorTerm{selector()}, Terms: unasked}, fault: "no term of them"},
		"not selected, allowed": {Placement: Placement{Claim: "data-web-1", Allowed: allowed("x", "y", "z"), Terms: unasked},
			requisite: "zone=x zone=y zone=z", preferred: "zone=y zone=z zone=x"},
		"not selected, strict has no effect": {Placement: Placement{Claim: "data-web-2", Strict: true, Immediate: true, Terms: threeZones},
			requisite: "zone=a zone=b zone=c", preferred: "zone=c zone=a zone=b"},
		"not selected, immediate": {Placement: Placement{Claim: "data-web-0", Immediate: true, Terms: threeZones},
			requisite: "zone=a zone=b zone=c", preferred: "zone=a zone=b zone=c"},
		"not selected, not immediate":            {Placement: Placement{Claim: "data-web-0", Terms: unasked}},
		"not selected, immediate, no nodes":      {Placement: Placement{Immediate: true, Terms: none}, fault: "no node has registered"},
		"not selected, allowed that say nothing": {Placement: Placement{Immediate: true, Allowed: []corev1.TopologySelectorTerm{selector()}, Terms: unasked}, fault: "no term of them"},
	} {
		got, err := c.Requirement()
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v", name, err)
		}
		if (got == nil) != (c.requisite == "") {
			t.Errorf("%s: got %v", name, got)
			continue
		}
		if diff := cmp.Diff([]string{c.requisite, c.preferred}, []string{topologyTexts(got.GetRequisite()), topologyTexts(got.GetPreferred())}); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
