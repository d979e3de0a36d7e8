package intent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
)

func of(node string) func(*Options) { return func(o *Options) { o.Node = node } }

func keysOf(s *Store[note]) []string { return slices.Sorted(maps.Keys(s.All())) }

// TestLoad_aCentralProcessTakesOverTheIntentsOfNodes: the driver was deployed on
// every node and is central now, or a node of it is lost.
func TestLoad_aCentralProcessTakesOverTheIntentsOfNodes(t *testing.T) {
	api := newServer()
	put(t, open(t, api, of("n1")), "a", "1")
	put(t, open(t, api, of("n2")), "b", "2")
	put(t, open(t, api, func(o *Options) { o.Driver = "other.example" }), "c", "3")
	central := open(t, api)
	if got := keysOf(central); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("it knows of %v, want those of both nodes and of its driver alone", got)
	}
	put(t, central, "d", "4")
	for name, object := range api.objects {
		if _, holds := object.Data["d"]; holds && !strings.HasPrefix(name, Prefix("d.example", "")) {
			t.Errorf("a new intent is in %s, an object of a node", name)
		}
	}
	for _, key := range []string{"a", "b", "d"} {
		if err := central.RemoveNow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := api.keys(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("left: %v", got)
	}
}

// TestLoad_aNodeTakesOverWhatACentralProcessHasLeftForIt: the driver was central
// and is deployed on every node now.
func TestLoad_aNodeTakesOverWhatACentralProcessHasLeftForIt(t *testing.T) {
	api := newServer()
	central := open(t, api)
	put(t, central, "a", "n1")
	put(t, central, "b", "n2")
	put(t, open(t, api, of("n2")), "c", "n2")
	before := api.writes
	if got := keysOf(open(t, api, of("n3"))); len(got) != 0 || api.writes != before {
		t.Errorf("node n3 knows of %v and wrote %d times", got, api.writes-before)
	}
	first, second := open(t, api, of("n1")), open(t, api, of("n2"))
	if got := keysOf(first); !slices.Equal(got, []string{"a"}) {
		t.Errorf("node n1 knows of %v", got)
	}
	if got := keysOf(second); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("node n2 knows of %v", got)
	}
	// Both change the object of the central process, each its own part of it.
	for key, store := range map[string]*Store[note]{"a": first, "b": second, "c": second} {
		if err := store.RemoveNow(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := api.keys(); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// TestLoad_believesNoObjectThatAnotherNodeCouldHaveWritten: the name of an object
// is all that a rule of admission protects.
func TestLoad_believesNoObjectThatAnotherNodeCouldHaveWritten(t *testing.T) {
	api := newServer()
	put(t, open(t, api, of("n1")), "a", "1")
	for name, object := range api.objects {
		forged := object.DeepCopy()
		forged.Name = strings.Replace(name, "-n1-", "-n1-evil-", 1)
		forged.Data = map[string]string{"forged": `{"Text":"x"}`}
		api.objects[forged.Name] = forged
	}
	for _, node := range []string{"n1", "n1-evil", ""} {
		if got := keysOf(open(t, api, of(node))); slices.Contains(got, "forged") {
			t.Errorf("node %q acts on %v", node, got)
		}
	}
}

func TestUnserved_areThoseThatNoProcessCompletes(t *testing.T) {
	api := newServer()
	put(t, open(t, api, of("lost")), "a", "1")
	put(t, open(t, api, of("alive")), "b", "2")
	central := open(t, api)
	put(t, central, "c", "of no node")
	put(t, central, "d", "own")
	own := open(t, api, of("own"))
	put(t, own, "e", "own")
	got, err := own.Unserved(t.Context(), func(node string) (bool, error) { return node == "alive", nil })
	if keys := slices.Sorted(maps.Keys(got)); err != nil || !slices.Equal(keys, []string{"a", "c"}) {
		t.Errorf("unserved: %v, %v", keys, err)
	}
	if _, err := own.Unserved(t.Context(), func(string) (bool, error) { return false, errors.New("away") }); err == nil {
		t.Error("whether a node is served is not known, and no error says so")
	}
}

// TestPrefix_noTwoStoresShareAName: names of drivers and nodes have the same
// letters as what separates them.
func TestPrefix_noTwoStoresShareAName(t *testing.T) {
	names := []string{"", "a", "a-b", "a.b", "a-0", "0", "0-0", "b", "b-0"}
	seen := map[string]string{}
	for _, driver := range names[1:] {
		for _, node := range names {
			for _, number := range []string{"0", "1", "10"} {
				name, what := Prefix(driver, node)+number, driver+"/"+node+"/"+number
				if other, taken := seen[name]; taken {
					t.Errorf("%s and %s have the name %s", what, other, name)
				}
				seen[name] = what
			}
		}
	}
}
