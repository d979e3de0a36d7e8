package volumes

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// blocked is an error that passes when an object changes: it is ErrWaiting to
// callers, and names what is waited for.
type blocked struct {
	error
	on     []string // waits.on names
	reason string   // of the event that reports the wait; "" for none
	normal bool     // the event is not a warning
}

func (b *blocked) Is(target error) bool { return target == ErrWaiting }
func (b *blocked) Unwrap() error        { return b.error }

// waitFor makes a blocked error. on is made by dependency.
func waitFor(on []string, reason, format string, arguments ...any) error {
	return &blocked{error: fmt.Errorf(format, arguments...), on: on, reason: reason}
}

// dependency names an object that something waits for.
func dependency(resource, key string) string { return resource + "/" + key }

func dependencies(names ...string) []string { return names }

// waits maps objects to the objects that wait for them. It is small: it has only
// what waits now.
type waits struct {
	mu    sync.Mutex
	on    map[string]map[string]bool // who waits for what, by what
	whose map[string][]string        // the same, by who
}

// set replaces the list of objects that who waits for. fresh reports whether one of
// them is new: the caller was not notified of earlier changes of it and must retry.
func (w *waits) set(who string, on []string) (fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on, w.whose = map[string]map[string]bool{}, map[string][]string{}
	}
	for _, old := range w.whose[who] {
		if slices.Contains(on, old) {
			continue
		}
		if delete(w.on[old], who); len(w.on[old]) == 0 {
			delete(w.on, old)
		}
	}
	for _, name := range on {
		if !w.on[name][who] {
			fresh = true
			if w.on[name] == nil {
				w.on[name] = map[string]bool{}
			}
			w.on[name][who] = true
		}
	}
	if len(on) == 0 {
		delete(w.whose, who)
	} else {
		w.whose[who] = on
	}
	return fresh
}

// add registers an object before a call reads it, so that who is notified of a
// change during the call. The next set replaces it.
func (w *waits) add(who, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on, w.whose = map[string]map[string]bool{}, map[string][]string{}
	}
	if w.on[name] == nil {
		w.on[name] = map[string]bool{}
	}
	w.on[name][who] = true
	if !slices.Contains(w.whose[who], name) {
		w.whose[who] = append(slices.Clone(w.whose[who]), name)
	}
}

// whom lists the objects that wait for an object.
func (w *waits) whom(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for who := range w.on[name] {
		all = append(all, who)
	}
	return all
}

// waiting lists the keys of one resource that wait for what changed.
func (m *Manager) waiting(resource string, change store.Change) []string {
	names := []string{dependency(change.Kind.Resource, change.Key), dependency(change.Kind.Resource, "*")}
	var keys []string
	for _, name := range names {
		for _, who := range m.waits.whom(name) {
			if kind, key, _ := splitKey(who); kind == resource {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// onOf collects what an error waits for.
func onOf(err error) []string {
	var wait *blocked
	if errors.As(err, &wait) {
		return wait.on
	}
	return nil
}
