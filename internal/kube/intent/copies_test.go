package intent

import (
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// duplicate copies the one object of a server under another number.
func duplicate(s *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, object := range s.objects {
		second := object.DeepCopy()
		second.Name = strings.TrimSuffix(name, "0") + "1"
		s.stamp(second)
		return
	}
}

// texts are the values of a key in all objects.
func (s *server) texts(key string) (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range s.objects {
		if text, found := object.Data[key]; found {
			texts = append(texts, string(newRecord(&slot{}, key, text).Intent))
		}
	}
	return texts
}

// TestPut_writesEveryCopy: after a write of unknown outcome, two objects have an
// intent. The next process may read either.
func TestPut_writesEveryCopy(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "1")
	duplicate(api)
	store := open(t, api)
	put(t, store, "a", "2")
	if got := api.texts("a"); len(got) != 2 || got[0] != `{"Text":"2"}` || got[1] != got[0] {
		t.Errorf("copies %v", got)
	}
	if err := store.RemoveNow(t.Context(), "a"); err != nil || len(api.keys()) > 0 {
		t.Errorf("%v; remaining %v", err, api.keys())
	}
}

// TestPut_failsIfACopyIsNotWritten: the earlier copy would count after a restart.
func TestPut_failsIfACopyIsNotWritten(t *testing.T) {
	api := newServer()
	put(t, open(t, api), "a", "1")
	duplicate(api)
	store := open(t, api)
	api.mu.Lock()
	api.refuse = func(name string) error {
		if strings.HasSuffix(name, "1") {
			return errors.New("no leader")
		}
		return nil
	}
	api.mu.Unlock()
	_, err := store.Put(t.Context(), "a", note{"2"})
	if got, _ := store.Get("a"); err == nil || got.Text != "1" {
		t.Errorf("%v; the store has %v", err, got)
	}
}

// TestLoad_ofTwoCopies: merge decides which copy counts, not the order of the objects.
func TestLoad_ofTwoCopies(t *testing.T) {
	for _, number := range []string{"0", "1"} {
		api := newServer()
		put(t, open(t, api), "a", "1")
		duplicate(api)
		api.mu.Lock()
		for name, object := range api.objects {
			if strings.HasSuffix(name, number) {
				object.Data["a"] = entry("1-x", "saved")
			}
		}
		api.mu.Unlock()
		store := open(t, api)
		loaded, _ := store.Get("a")
		reread, found, err := store.Reread(t.Context(), "a")
		if loaded.Text != "saved" || reread.Text != "saved" || !found || err != nil {
			t.Errorf("object %s has the later copy: loaded %v, reread %v, %v, %v", number, loaded, reread, found, err)
		}
	}
}

// TestLoad_withoutMerge_prefersTheOwnCopy: the copy of an earlier deployment is older.
func TestLoad_withoutMerge_prefersTheOwnCopy(t *testing.T) {
	api := newServer()
	openPlain := func(api *server, node string) *Store[note] {
		options := Options{ConfigMaps: api, Driver: "d.example", Node: node, Window: time.Millisecond, Spacing: time.Millisecond}
		return start(t, New(options, Kind[note]{}))
	}
	for node, text := range map[string]string{"n": "of node n", "": "own"} {
		separate := newServer() // neither store loads the other's intent
		put(t, openPlain(separate, node), "a", text)
		maps.Copy(api.objects, separate.objects)
	}
	store := openPlain(api, "")
	loaded, _ := store.Get("a")
	reread, found, err := store.Reread(t.Context(), "a")
	if loaded.Text != "own" || reread.Text != "own" || !found || err != nil {
		t.Errorf("loaded %v, reread %v, %v, %v", loaded, reread, found, err)
	}
}

// TestRemove_afterAWriteOfUnknownOutcome: the object has the intent although the
// write failed.
func TestRemove_afterAWriteOfUnknownOutcome(t *testing.T) {
	api := newServer()
	store := open(t, api)
	var failing atomic.Bool
	failing.Store(true)
	api.mu.Lock()
	api.lose = true
	api.fail = func(verb string) error {
		if failing.Load() && verb == "update" {
			return errors.New("the connection broke")
		}
		return nil
	}
	api.mu.Unlock()
	if _, err := store.Put(t.Context(), "a", note{"1"}); err == nil || len(api.keys()) != 1 {
		t.Fatalf("%v; stored %v", err, api.keys())
	}
	failing.Store(false)
	if err := store.RemoveNow(t.Context(), "a"); err != nil || len(api.keys()) > 0 {
		t.Errorf("%v; remaining %v", err, api.keys())
	}
}
