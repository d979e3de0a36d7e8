package intent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// names is an intent that several processes add to.
type names []string

func openNames(t *testing.T, api *server) *Store[names] {
	t.Helper()
	options := Options{ConfigMaps: api, Driver: "d.example", Window: time.Millisecond, Spacing: time.Millisecond}
	return start(t, New(options, Kind[names]{Merge: func(stored, next names) names {
		return slices.Compact(slices.Sorted(slices.Values(slices.Concat(stored, next))))
	}}))
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

// TestPut_duringAnotherWriteOfTheKey: the caller of the first Put has left. Its write has
// read what another process wrote, and is under way again.
func TestPut_duringAnotherWriteOfTheKey(t *testing.T) {
	for name, row := range map[string]struct {
		known  bool // the first process has the intent
		failed bool // the write that is under way
		want   names
	}{
		"a known intent is written": {true, false, names{"1", "2", "3", "4"}},
		"a new intent is written":   {false, false, names{"2", "3", "4"}},
		"a known intent fails":      {true, true, names{"1", "2", "4"}},
		"a new intent fails":        {false, true, names{"2", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			api := newServer()
			first, second := openNames(t, api), openNames(t, api)
			add(t, first, "other", "x", "x")
			if row.known {
				add(t, first, "a", "1", "1")
				add(t, second, "a", "2", "1", "2")
			} else {
				add(t, second, "a", "2", "2")
			}
			arrived, release := api.holdSecondUpdate(row.failed)
			leaving, leave := context.WithCancel(t.Context())
			go func() { <-arrived; leave() }()
			if _, err := first.Put(leaving, "a", names{"3"}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			written := make(chan names, 1)
			go func() {
				got, err := first.Put(t.Context(), "a", names{"4"})
				if err != nil {
					t.Error(err)
				}
				written <- got
			}()
			eventually(t, "the second Put is pending", func() bool {
				first.mu.Lock()
				defer first.mu.Unlock()
				return first.pending["a"] != nil
			})
			close(release)
			if got := <-written; !slices.Equal(got, row.want) {
				t.Errorf("Put returned %v; want %v", got, row.want)
			}
			if got, _ := openNames(t, api).Get("a"); !slices.Equal(got, row.want) {
				t.Errorf("stored: %v; want %v", got, row.want)
			}
		})
	}
}

// TestPut_thatFailsAfterItReadAnotherProcessesIntent: the store still knows that intent.
func TestPut_thatFailsAfterItReadAnotherProcessesIntent(t *testing.T) {
	api := newServer()
	first, second := openNames(t, api), openNames(t, api)
	add(t, first, "other", "x", "x")
	add(t, second, "a", "2", "2")
	_, release := api.holdSecondUpdate(true)
	close(release)
	if _, err := first.Put(t.Context(), "a", names{"3"}); err == nil {
		t.Fatal("the write did not fail")
	}
	if got, _ := first.Get("a"); !slices.Equal(got, names{"2"}) {
		t.Errorf("in memory: %v", got)
	}
}

// holdSecondUpdate holds the second of the next updates that write the name 3 until release
// is closed, and then lets it fail or not. The first one conflicts.
func (s *server) holdSecondUpdate(fail bool) (arrived, release chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arrived, release = make(chan struct{}), make(chan struct{})
	updates := 0
	s.before = func(object *corev1.ConfigMap) error {
		if !slices.ContainsFunc(slices.Collect(maps.Values(object.Data)), func(text string) bool { return strings.Contains(text, `"3"`) }) {
			return nil
		}
		if updates++; updates != 2 {
			return nil
		}
		close(arrived)
		<-release
		if fail {
			return errors.New("no leader")
		}
		return nil
	}
	return arrived, release
}

// TestPut_afterARemovalStartsAnew: what the removed intent had does not count.
func TestPut_afterARemovalStartsAnew(t *testing.T) {
	store := openNames(t, newServer())
	add(t, store, "a", "1", "1")
	store.Remove("a")
	add(t, store, "a", "2", "2")
}
