package intent

import (
	"slices"
	"testing"
	"time"
)

// names is an intent that several processes add to.
type names []string

func openNames(t *testing.T, api *server) *Store[names] {
	t.Helper()
	options := Options{ConfigMaps: api, Driver: "d.example", Window: time.Millisecond, Spacing: time.Millisecond}
	return start(t, New(options, nil, func(stored, next names) names {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(stored, next))))
	}))
}

// add puts an intent and compares what Put returns.
func add(t *testing.T, s *Store[names], key, name string, want ...string) {
	t.Helper()
	if got, err := s.Put(t.Context(), key, names{name}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Put of %s returned %v, %v; want %v", name, got, err, want)
	}
}

// TestPut_mergesWhatAnotherProcessWrote: each of two processes writes without the
// knowledge of the other's change.
func TestPut_mergesWhatAnotherProcessWrote(t *testing.T) {
	api := newServer()
	first, second := openNames(t, api), openNames(t, api)
	t.Run("both write a new intent", func(t *testing.T) {
		add(t, first, "new", "1", "1")
		add(t, second, "new", "2", "1", "2")
	})
	t.Run("both change an intent", func(t *testing.T) {
		add(t, first, "new", "3", "1", "2", "3")
		add(t, second, "new", "4", "1", "2", "3", "4")
	})
	t.Run("the object is read again for another intent", func(t *testing.T) {
		add(t, first, "other", "x", "x")
		if got, _ := first.Get("new"); !slices.Equal(got, names{"1", "2", "3", "4"}) {
			t.Errorf("in memory: %v", got)
		}
		add(t, first, "new", "1", "1", "2", "3", "4")
	})
	t.Run("a restart", func(t *testing.T) {
		if got, _ := openNames(t, api).Get("new"); !slices.Equal(got, names{"1", "2", "3", "4"}) {
			t.Errorf("loaded: %v", got)
		}
	})
}

// TestPut_afterARemovalStartsAnew: what the removed intent had does not count.
func TestPut_afterARemovalStartsAnew(t *testing.T) {
	store := openNames(t, newServer())
	add(t, store, "a", "1", "1")
	store.Remove("a")
	add(t, store, "a", "2", "2")
}
