package claim

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func labels(pairs ...string) map[string]string { return term(pairs...).Map() }

func TestNodeTerms_sameKeysEverywhere(t *testing.T) {
	var nodes NodeTerms
	nodes.Put("n1", []string{"zone"}, labels("zone", "b", "host", "1"))
	nodes.Put("n2", []string{"zone"}, labels("zone", "a", "host", "2"))
	nodes.Put("n3", []string{"zone"}, labels("zone", "b", "host", "3"))
	want := []string{"zone=a", "zone=b"}
	for name, got := range map[string][]Term{"Like": nodes.Like("n1").List(), "All": nodes.All().List(), "Segments": nodes.Segments()} {
		if diff := cmp.Diff(want, texts(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNodeTerms_finerKeysOnSomeNodes(t *testing.T) {
	var nodes NodeTerms
	nodes.Put("coarse", []string{"zone"}, labels("zone", "a", "rack", "9"))
	nodes.Put("fine", []string{"zone", "rack"}, labels("zone", "b", "rack", "1"))
	for name, c := range map[string]struct {
		got  []Term
		want []string
	}{
		"a coarse node sees both":          {nodes.Like("coarse").List(), []string{"zone=a", "zone=b"}},
		"a fine one only registered racks": {nodes.Like("fine").List(), []string{"rack=1,zone=b"}},
		"all mix":                          {nodes.All().List(), []string{"zone=a", "zone=b", "rack=1,zone=b"}},
		"segments are the nodes' own":      {nodes.Segments(), []string{"zone=a", "rack=1,zone=b"}},
	} {
		if diff := cmp.Diff(c.want, texts(c.got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNodeTerms_aNodeWithoutItsLabelHasNoTerm(t *testing.T) {
	var nodes NodeTerms
	if nodes.Put("n1", []string{"zone"}, labels("host", "1")) {
		t.Error("a term appeared")
	}
	if _, err := nodes.Term("n1"); err == nil || !strings.Contains(err.Error(), "zone") {
		t.Errorf("the error does not name the label: %v", err)
	}
	if got := nodes.Like("n1").Len() + nodes.All().Len() + len(nodes.Segments()); got != 0 {
		t.Errorf("%d topologies", got)
	}
	if !nodes.Put("n1", []string{"zone"}, labels("zone", "a")) {
		t.Error("the label made no difference")
	}
	if got := nodes.All().Len(); got != 1 {
		t.Errorf("%d topologies with the label", got)
	}
}

func TestNodeTerms_noKeysNoTerm(t *testing.T) {
	var nodes NodeTerms
	nodes.Put("n1", nil, labels("zone", "a"))
	if _, err := nodes.Term("n1"); err == nil || !strings.Contains(err.Error(), "no topology keys") {
		t.Errorf("got %v", err)
	}
	if nodes.All().Len() != 0 || nodes.Like("n1").Len() != 0 {
		t.Error("a term without segments")
	}
}

func TestNodeTerms_anUnknownNode(t *testing.T) {
	var nodes NodeTerms
	if nodes.Remove("n1") || nodes.Has("n1") || nodes.Like("n1").Len() != 0 {
		t.Error("the node is known")
	}
	if _, err := nodes.Term("n1"); err == nil {
		t.Error("it has a term")
	}
}

func TestNodeTerms_listsAreSharedUntilATermChanges(t *testing.T) {
	var nodes NodeTerms
	nodes.Put("n1", []string{"zone"}, labels("zone", "a"))
	first := nodes.Like("n1")
	nodes.Put("n2", []string{"zone"}, labels("zone", "a"))
	nodes.Put("n1", []string{"zone"}, labels("zone", "a", "unrelated", "changed"))
	nodes.Remove("n2")
	if nodes.Like("n1") != first || nodes.All() != first {
		t.Error("a list was made again for nothing")
	}
	nodes.Put("n2", []string{"zone"}, labels("zone", "b"))
	if got := nodes.Like("n1").Len(); got != 2 || first.Len() != 1 {
		t.Errorf("%d terms, and %d in the list given before", got, first.Len())
	}
}

// modelNode is a node of the plain model that the index is compared with.
type modelNode struct {
	keys   []string
	labels map[string]string
}

type model map[string]modelNode

func (m model) term(keys []string, node modelNode) (Term, bool) {
	found := map[string]string{}
	for _, key := range keys {
		value, has := node.labels[key]
		if !has || !slices.Contains(node.keys, key) {
			return nil, false
		}
		found[key] = value
	}
	return NewTerm(found), len(keys) > 0
}

func (m model) having(keys []string) []Term {
	var terms []Term
	for _, node := range m {
		if term, ok := m.term(keys, node); ok {
			terms = append(terms, term)
		}
	}
	return terms
}

func (m model) all() (all, own []Term) {
	for _, node := range m {
		all = append(all, m.having(node.keys)...)
		if term, ok := m.term(node.keys, node); ok {
			own = append(own, term)
		}
	}
	return SortTerms(all), SortTerms(own)
}

func TestNodeTerms_agreesWithReadingAllNodes(t *testing.T) {
	keys := []string{"host", "rack", "zone"}
	rapid.Check(t, func(t *rapid.T) {
		var nodes NodeTerms
		world := model{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"n1", "n2", "n3", "n4", "n5"}).Draw(t, "node")
			_, before := world.all()
			var changed bool
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				delete(world, name)
				changed = nodes.Remove(name)
			} else {
				node := modelNode{
					keys:   rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 3, rapid.ID).Draw(t, "keys"),
					labels: rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"1", "2"}), 0, 3).Draw(t, "labels"),
				}
				world[name] = node
				changed = nodes.Put(name, node.keys, maps.Clone(node.labels))
			}
			all, own := world.all()
			if diff := cmp.Diff(texts(all), texts(nodes.All().List())); diff != "" {
				t.Fatalf("All: %s", diff)
			}
			if diff := cmp.Diff(texts(own), texts(nodes.Segments())); diff != "" {
				t.Fatalf("Segments: %s", diff)
			}
			if !changed && !slices.Equal(texts(before), texts(own)) {
				t.Fatal("Segments changed and nothing said so")
			}
			for name, node := range world {
				if diff := cmp.Diff(texts(SortTerms(world.having(node.keys))), texts(nodes.Like(name).List())); diff != "" {
					t.Fatalf("Like(%s): %s", name, diff)
				}
			}
		}
	})
}

func BenchmarkNodeTerms_requestOfFiveThousandNodes(b *testing.B) {
	var nodes NodeTerms
	for i := range 5000 {
		name := strings.Repeat("n", 1+i%7) + string(rune('a'+i%26)) + strings.Repeat("x", i%191)
		nodes.Put(name, []string{"host"}, labels("host", name))
	}
	some := slices.Sorted(maps.Keys(nodes.nodes))[0]
	for b.Loop() {
		node, _ := nodes.Term(some)
		terms := func() *Terms { return nodes.Like(some) }
		if _, err := (Placement{Node: node, Terms: terms}).Requirement(); err != nil {
			b.Fatal(err)
		}
	}
}
