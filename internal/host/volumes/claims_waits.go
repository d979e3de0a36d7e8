package volumes

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// blocked is an ErrWaiting that names the objects awaited change ends the wait.
type blocked struct {
	error
	on     []string // the objects, each made by dependency
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

// waits maps objects to the objects that wait for them now.
type waits struct {
	mu      sync.Mutex
	on      map[string]map[string]bool // the waiting objects, by awaited object
	awaited map[string][]string        // the awaited objects, by waiting object
}

// set replaces the objects that another object waits for. fresh reports whether one of
// them is new: the caller was not notified of earlier changes of it and must retry.
func (w *waits) set(waiter string, on []string) (fresh bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on, w.awaited = map[string]map[string]bool{}, map[string][]string{}
	}
	for _, old := range w.awaited[waiter] {
		if slices.Contains(on, old) {
			continue
		}
		if delete(w.on[old], waiter); len(w.on[old]) == 0 {
			delete(w.on, old)
		}
	}
	for _, name := range on {
		if !w.on[name][waiter] {
			fresh = true
			if w.on[name] == nil {
				w.on[name] = map[string]bool{}
			}
			w.on[name][waiter] = true
		}
	}
	if len(on) == 0 {
		delete(w.awaited, waiter)
	} else {
		w.awaited[waiter] = on
	}
	return fresh
}

// add registers an object before a call reads it, so that the waiter is notified of a
// change during the call. The next set replaces it.
func (w *waits) add(waiter, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.on == nil {
		w.on, w.awaited = map[string]map[string]bool{}, map[string][]string{}
	}
	if w.on[name] == nil {
		w.on[name] = map[string]bool{}
	}
	w.on[name][waiter] = true
	if !slices.Contains(w.awaited[waiter], name) {
		w.awaited[waiter] = append(slices.Clone(w.awaited[waiter]), name)
	}
}

// keysFor lists the keys of a controller that wait for an object.
func (w *waits) keysFor(controller, name string) (keys []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for waiter := range w.on[name] {
		if waiting, key, _ := splitKey(waiter); waiting == controller {
			keys = append(keys, key)
		}
	}
	return keys
}

// waiting lists the keys of a controller that wait for a changed object.
func (m *Manager) waiting(controller string, change store.Change) []string {
	resource := change.Kind.Resource
	return append(m.waits.keysFor(controller, dependency(resource, change.Key)),
		m.waits.keysFor(controller, dependency(resource, "*"))...)
}

// onOf lists the objects that an error waits for.
func onOf(err error) []string {
	var wait *blocked
	if errors.As(err, &wait) {
		return wait.on
	}
	return nil
}
