package claim

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"pgregory.net/rapid"
)

func topologies(terms ...map[string]string) []*csi.Topology {
	var list []*csi.Topology
	for _, segments := range terms {
		list = append(list, &csi.Topology{Segments: segments})
	}
	return list
}

func TestSnapshotAffinity_isReadAsWritten(t *testing.T) {
	for _, c := range []struct {
		name    string
		written []*csi.Topology
		want    string // the Terms
	}{
		{"nothing", nil, ""},
		{"a topology without segments contains all nodes", topologies(map[string]string{"zone": "a"}, nil), ""},
		{"a node", topologies(map[string]string{"node": "n1"}), "node=n1"},
		{"zones of a region", topologies(map[string]string{"zone": "b", "region": "r"}, map[string]string{"zone": "a", "region": "r"}), "region=r,zone=a region=r,zone=b"},
	} {
		text, err := SnapshotAffinity(c.written)
		if err != nil || (text == "") != (c.want == "") {
			t.Errorf("%s: %q, %v", c.name, text, err)
			continue
		}
		annotations := map[string]string{}
		if text != "" {
			annotations[NodeAffinityAnnotation] = text
		}
		terms, err := SnapshotTerms(annotations)
		var got []string
		for _, term := range terms {
			got = append(got, term.String())
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: read %q, %v", c.name, got, err)
		}
	}
	const field = `[{"matchLabelExpressions":[{"key":"node","values":["n1"]}]}]` // the KEP's form
	if text, _ := SnapshotAffinity(topologies(map[string]string{"node": "n1"})); text != field {
		t.Errorf("written as %s", text)
	}
}

func TestSnapshotTerms_damagedIsAnError(t *testing.T) {
	for _, text := range []string{"", "{}", "[]", `[{"matchLabelExpressions":[]}]`, `[{"matchLabelExpressions":[{"key":"a"}]}]`} {
		if terms, err := SnapshotTerms(map[string]string{NodeAffinityAnnotation: text}); err == nil || !strings.Contains(err.Error(), NodeAffinityAnnotation) {
			t.Errorf("%q: %v, %v", text, terms, err)
		}
	}
}

func TestRestrict(t *testing.T) {
	n1, n2 := map[string]string{"node": "n1"}, map[string]string{"node": "n2"}
	both := &csi.TopologyRequirement{Requisite: topologies(n1, n2), Preferred: topologies(n2, n1)}
	if got := Restrict(both, nil); got != both {
		t.Errorf("usable everywhere: %v", got)
	}
	got := Restrict(both, []Term{NewTerm(n1)})
	if len(got.GetRequisite()) != 1 || len(got.GetPreferred()) != 1 || got.GetPreferred()[0].GetSegments()["node"] != "n1" {
		t.Errorf("on one node: %v", got)
	}
	if got := Restrict(both, []Term{NewTerm(map[string]string{"node": "n3"})}); got != nil {
		t.Errorf("elsewhere: %v", got)
	}
	if got := Restrict(nil, []Term{NewTerm(n1)}); len(got.GetRequisite()) != 1 || len(got.GetPreferred()) != 1 {
		t.Errorf("no requirement: %v", got)
	}
}

// TestRestrict_isTheIntersection compares with every node of a small cluster: a node is
// in the result if, and only if, it is in the requirement and the snapshot can be
// restored there.
func TestRestrict_isTheIntersection(t *testing.T) {
	keys, values := []string{"region", "zone", "rack"}, []string{"a", "b"}
	segments := func(t *rapid.T, label string, least int) map[string]string {
		made := map[string]string{}
		for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keys), least, len(keys), rapid.ID).Draw(t, label) {
			made[key] = rapid.SampledFrom(values).Draw(t, label+" "+key)
		}
		return made
	}
	rapid.Check(t, func(t *rapid.T) {
		requirement := &csi.TopologyRequirement{}
		for range rapid.IntRange(1, 4).Draw(t, "topologies") {
			requirement.Requisite = append(requirement.Requisite, &csi.Topology{Segments: segments(t, "requisite", 0)})
		}
		var terms []Term
		for range rapid.IntRange(1, 3).Draw(t, "terms") {
			terms = append(terms, NewTerm(segments(t, "term", 1)))
		}
		narrowed := Restrict(requirement, terms)
		in := func(node Term, list []*csi.Topology) bool {
			return slices.ContainsFunc(list, func(x *csi.Topology) bool { return NewTerm(x.GetSegments()).Within(node) })
		}
		for i := range 8 {
			node := NewTerm(map[string]string{"region": values[i&1], "zone": values[i>>1&1], "rack": values[i>>2&1]})
			want := in(node, requirement.GetRequisite()) && Restorable(terms, node)
			if got := in(node, narrowed.GetRequisite()); got != want {
				t.Fatalf("node %s: %v, want %v; %v", node, got, want, narrowed)
			}
		}
	})
}
