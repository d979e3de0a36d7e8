package intent

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		t.Errorf("remaining: %v", got)
	}
}

// TestLoad_aNodeTakesOverItsIntentsOfACentralProcess: the driver was central
// and is deployed on every node now.
func TestLoad_aNodeTakesOverItsIntentsOfACentralProcess(t *testing.T) {
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
		t.Errorf("remaining: %v", got)
	}
}

// TestForeign_reportsTheIntentsOfOthers: a node that acted for such a key could do the same
// thing twice.
func TestForeign_reportsTheIntentsOfOthers(t *testing.T) {
	api := newServer()
	central := open(t, api)
	put(t, central, "a", "n1")
	put(t, central, "b", "n2")
	put(t, central, "c", "")
	put(t, open(t, api, of("n2")), "d", "n2")
	own := open(t, api, of("n1"))
	foreign := func() (keys string) {
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			found, err := own.Foreign(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if found {
				keys += key
			}
		}
		return keys
	}
	if got := foreign(); got != "bc" {
		t.Errorf("foreign: %s", got)
	}
	if err := open(t, api, of("n2")).RemoveNow(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := foreign(); got != "c" {
		t.Errorf("foreign after the other node has completed b: %s", got)
	}
	clear(api.objects)
	if got := foreign(); got != "" {
		t.Errorf("foreign after the objects are gone: %s", got)
	}
	for _, store := range []*Store[note]{central, open(t, api)} {
		if found, err := store.Foreign(t.Context(), "b"); found || err != nil {
			t.Errorf("a central process leaves an intent to others: %t, %v", found, err)
		}
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
		forged.Data = map[string]string{"forged": entry("1-x", "x")}
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
	put(t, central, "f", "alive")
	put(t, central, "g", "damaged")
	api.edit("g", "no JSON")
	own := open(t, api, of("own"))
	put(t, own, "e", "own")
	asked := map[string]int{}
	got, err := own.Unserved(t.Context(), func(node string) (bool, error) {
		asked[node]++
		return node == "alive", nil
	})
	if keys := keysUnserved(got); err != nil || !slices.Equal(keys, []string{"a", "c", "g"}) {
		t.Errorf("unserved: %v, %v", keys, err)
	}
	for _, found := range got {
		if (found.Err != nil) != (found.Key == "g") || found.Key == "a" && found.Node != "lost" {
			t.Errorf("%+v", found)
		}
	}
	if asked["alive"] != 1 || asked["own"] != 0 {
		t.Errorf("asked for nodes: %v", asked)
	}
	if _, err := own.Unserved(t.Context(), func(string) (bool, error) { return false, errors.New("away") }); err == nil {
		t.Error("whether a node is served is not known, and no error says so")
	}
}

// TestUnserved_toAnObserver: a process that completes no intents sees those of all stores. A
// node that is served may lack the right to take over its intents of a central process.
func TestUnserved_toAnObserver(t *testing.T) {
	api := newServer()
	put(t, open(t, api, of("lost")), "a", "1")
	put(t, open(t, api, of("alive")), "b", "2")
	central := open(t, api)
	put(t, central, "c", "of no node")
	put(t, central, "d", "alive")
	observer := New(Options{ConfigMaps: api, Driver: "d.example", Observer: true}, Kind[note]{NodeOf: func(n note) string { return n.Text }})
	got, err := observer.Unserved(t.Context(), func(node string) (bool, error) { return node == "alive", nil })
	if keys := keysUnserved(got); err != nil || !slices.Equal(keys, []string{"a", "c", "d"}) {
		t.Errorf("unserved: %v, %v", keys, err)
	}
	for _, found := range got {
		if found.Due != (found.Key == "d") {
			t.Errorf("%+v", found)
		}
	}
}

// TestUnserved_notWhatThisProcessHasFinished: the removal of a finished intent waits for
// a write that is due anyway.
func TestUnserved_notWhatThisProcessHasFinished(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "n1")
	own := open(t, api, of("n1"), func(o *Options) { o.FlushAfter = time.Hour })
	own.Remove("a")
	got, err := own.Unserved(t.Context(), func(string) (bool, error) { return true, nil })
	if err != nil || len(got) > 0 {
		t.Errorf("unserved: %v, %v", keysUnserved(got), err)
	}
}

func keysUnserved(all []Unserved[note]) (keys []string) {
	for _, found := range all {
		keys = append(keys, found.Key)
	}
	slices.Sort(keys)
	return keys
}

// TestLoad_worksWithoutTheRightToForeignObjects: the admission policy of nodes
// refuses a write to the intents of a central process. The node starts all the
// same, and reports what it could not take over.
func TestLoad_worksWithoutTheRightToForeignObjects(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "n1")
	put(t, open(t, api, of("n1")), "b", "n1")
	api.refuse = func(name string) error {
		if !strings.HasPrefix(name, Prefix("d.example", "n1")) {
			return apierrors.NewForbidden(configMaps, name, errors.New("ValidatingAdmissionPolicy"))
		}
		return nil
	}
	own := open(t, api, of("n1"))
	if got := keysOf(own); !slices.Equal(got, []string{"b"}) {
		t.Errorf("it knows of %v", got)
	}
	got, err := own.Unserved(t.Context(), func(string) (bool, error) { return true, nil })
	if keys := keysUnserved(got); err != nil || !slices.Equal(keys, []string{"a"}) {
		t.Errorf("unserved: %v, %v", keys, err)
	}
	api.refuse = func(name string) error { return apierrors.NewForbidden(configMaps, name, errors.New("no right")) }
	if err := New(own.options, Kind[note]{}).Load(t.Context()); err == nil {
		t.Error("a store that may not write its own objects is loaded")
	}
}

// TestLoad_takesOverShards: the releases before the log wrote objects whose entries are
// intents, the first ones under names with a hash of driver and node. They can still read
// what this one changes in them.
func TestLoad_takesOverShards(t *testing.T) {
	for _, node := range []string{"", "n1"} {
		for _, name := range []string{earlierPrefix("d.example", node) + "0", Prefix("d.example", node) + "0", Prefix("d.example", node) + "2147483647"} {
			api := newServer()
			api.addShard(name, node, map[string]string{"a": `{"Text":"1"}`, "c": `{"Text":"3"}`})
			store := open(t, api, of(node))
			if got := keysOf(store); !slices.Equal(got, []string{"a", "c"}) {
				t.Errorf("%s: it knows of %v", name, got)
			}
			put(t, store, "b", "2")
			put(t, store, "a", "changed")
			if got := api.objects[name].Data; !maps.Equal(got, map[string]string{"a": `{"Text":"changed"}`, "c": `{"Text":"3"}`}) {
				t.Errorf("%s: after a change: %v", name, got)
			}
			for _, key := range []string{"a", "c"} {
				if err := store.RemoveNow(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			if _, kept := api.objects[store.options.slotName(0)]; !kept || len(api.objects) != 1 {
				t.Errorf("%s: %d objects", name, len(api.objects))
			}
		}
	}
}

// TestPrefix_noTwoStoresShareAName: names of drivers and nodes have the same
// letters as the separators.
func TestPrefix_noTwoStoresShareAName(t *testing.T) {
	names := []string{"", "a", "a-b", "a.b", "a-0", "0", "0-0", "b", "b-0"}
	seen := map[string]string{}
	for _, driver := range names[1:] {
		for _, node := range names {
			for _, number := range []string{"0", "1", "10"} {
				name, store := Prefix(driver, node)+number, driver+"/"+node+"/"+number
				if other, taken := seen[name]; taken {
					t.Errorf("%s and %s have the name %s", store, other, name)
				}
				seen[name] = store
			}
		}
	}
}

// TestRemoveLeft_whatHasNoIntents: a central process left its topologies, a node that is lost
// an empty object. Those of a node that is served stay, and so do intents with their
// topologies.
func TestRemoveLeft_whatHasNoIntents(t *testing.T) {
	api := newServer()
	add := func(node, number string, change func(*corev1.ConfigMap)) string {
		o := Options{Driver: "d.example"}
		object := o.newObject(&slot{name: Prefix(o.Driver, node) + number, node: node})
		change(object)
		api.stamp(object)
		return object.Name
	}
	topologies := func(o *corev1.ConfigMap) { o.BinaryData = map[string][]byte{partName([]byte("p")): []byte("p")} }
	empty := func(*corev1.ConfigMap) {}
	add("", "10000000000", topologies)
	add("", "10000000001", empty)
	add("lost", "10000000000", empty)
	kept := []string{
		add("n2", "10000000000", empty),
		add("busy", "10000000000", topologies),
		add("busy", "10000000001", func(o *corev1.ConfigMap) { o.Data = map[string]string{"a": entry("1-x", "1")} }),
	}
	own := open(t, api, of("n1"))
	served := func(node string) (bool, error) { return node == "n2", nil }
	api.refuse = func(name string) error {
		return apierrors.NewForbidden(configMaps, name, errors.New("ValidatingAdmissionPolicy"))
	}
	if err := own.RemoveLeft(t.Context(), served); err != nil || len(api.objects) != 6 {
		t.Errorf("without the right to other stores: %v; %d objects remain", err, len(api.objects))
	}
	api.refuse = nil
	if err := own.RemoveLeft(t.Context(), served); err != nil {
		t.Error(err)
	}
	if got := slices.Sorted(maps.Keys(api.objects)); !slices.Equal(got, slices.Sorted(slices.Values(kept))) {
		t.Errorf("kept %v, want %v", got, kept)
	}
	if err := own.RemoveLeft(t.Context(), func(string) (bool, error) { return false, errors.New("away") }); err == nil {
		t.Error("whether a node is served is not known, and no error says so")
	}
}
