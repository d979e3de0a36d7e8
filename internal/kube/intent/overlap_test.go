package intent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// removeNow fails the test if a removal does not end.
func removeNow(t *testing.T, s *Store[note], key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.RemoveNow(ctx, key); err != nil {
		t.Error(err)
	}
}

// TestRemoveNow_ofAnIntentThatANodePutLater: the controllers of a node still run while a
// central process takes over. It removes the intent before it deletes the volume.
func TestRemoveNow_ofAnIntentThatANodePutLater(t *testing.T) {
	api := newServer()
	node := open(t, api, of("n1"))
	put(t, node, "a", "1")
	central := open(t, api)
	put(t, node, "k", "1")
	put(t, central, "x", "1") // its first object: it reads all of them
	if !central.Stored("k") {
		t.Fatal("the central process has not seen the intent of the node")
	}
	t.Run("the node has removed it", func(t *testing.T) {
		put(t, node, "l", "1")
		put(t, central, "y", "1")
		removeNow(t, node, "l")
		removeNow(t, central, "l")
	})
	removeNow(t, central, "k")
	if got := api.keys(); slices.Contains(got, "k") {
		t.Errorf("remaining: %v", got)
	}
}

// TestRemoveNow_ofAnIntentForNoNode: a node deletes a volume whose intent of a former central
// process is next to one that the node completes.
func TestRemoveNow_ofAnIntentForNoNode(t *testing.T) {
	api := newServer()
	central := open(t, api)
	put(t, central, "a", "n1")
	put(t, central, "k", "")
	node := open(t, api, of("n1"))
	if node.Stored("k") {
		removeNow(t, node, "k")
	}
	if got := api.keys(); slices.Contains(got, "k") {
		t.Errorf("remaining: %v", got)
	}
}

// TestPut_keepsThePartThatItNeeds: no intent has the part any more, and the outcomes of
// writes of it and of another object are unknown, so that both are repeated at once.
func TestPut_keepsThePartThatItNeeds(t *testing.T) {
	api := newServer()
	options := Options{ConfigMaps: api, Driver: "d.example", FlushAfter: time.Hour}
	store := New(options, stateKind())
	commit := func() {
		t.Helper()
		if err := store.commit(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	request := func(key, part string) {
		t.Helper()
		if _, err := store.request(key, state{Owner: key, Part: part}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	request("a", "p")
	request("b", "")
	commit()
	store.change("a", &change[state]{remove: true, done: make(chan error, 1)})
	commit()
	if len(store.view.slots) != 2 || len(store.view.uses) != 1 {
		t.Fatalf("%d objects, uses %v", len(store.view.slots), store.view.uses)
	}
	for _, slot := range store.view.slots {
		slot.stale = true
	}
	request("c", "p")
	store.take()
	writes := store.plan(false)
	for _, w := range writes {
		if next := store.content(w); len(next.Data)+len(next.BinaryData) == 0 {
			t.Errorf("%s is deleted", w.slot.name)
		}
	}
	if len(writes) != 2 {
		t.Errorf("%d writes", len(writes))
	}
}

// TestPut_fewObjectsForManyIntents: a driver hangs, and intents that come one by one stay. A
// process that takes over lists all objects and writes to each.
func TestPut_fewObjectsForManyIntents(t *testing.T) {
	api := newServer()
	store := New(Options{ConfigMaps: api, Driver: "d.example", FlushAfter: time.Hour}, Kind[note]{})
	if err := store.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	const intents = 1000
	for i := range intents {
		if _, err := store.request(fmt.Sprint("k", i), note{strings.Repeat("x", 2*carriedBytes)}); err != nil {
			t.Fatal(err)
		}
		if err := store.commit(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(api.keys()); got != intents || len(api.objects) > intents/2 {
		t.Errorf("%d intents in %d objects", got, len(api.objects))
	}
}

// TestPut_overAnIntentWhosePartIsLost: an administrator deleted the ConfigMap of the
// topologies, and a process started that could not read the intent.
func TestPut_overAnIntentWhosePartIsLost(t *testing.T) {
	api := newServer()
	load := func() *Store[state] {
		t.Helper()
		store := New(Options{ConfigMaps: api, Driver: "d.example"}, stateKind())
		if err := store.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return store
	}
	write := func(store *Store[state], part string) {
		t.Helper()
		if _, err := store.request("a", state{Owner: "o", Part: part}); err != nil {
			t.Fatal(err)
		}
		if err := store.commit(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	write(load(), "p")
	for name, object := range api.objects {
		if len(object.BinaryData) > 0 {
			delete(api.objects, name)
		}
	}
	next := load()
	if _, found := next.Get("a"); found {
		t.Fatal("an intent without its part is read")
	}
	write(next, "q")
	if got, found := load().Get("a"); !found || got.Part != "q" {
		t.Errorf("the next process has %+v, %t", got, found)
	}
}
