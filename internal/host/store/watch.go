package store

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
)

// ErrExpired means that changes since the requested version are not kept any
// more: the caller lists everything, and watches from there.
var ErrExpired = errors.New("the version is too old")

// Change is one change of one object, as it was committed.
type Change struct {
	Kind    Kind
	Key     string
	Version uint64
	// Data is the object as JSON: after the change, or the last that was there
	// if Deleted.
	Data    []byte
	Created bool
	Deleted bool
	// Writer made the change; nil if unknown.
	Writer *Writer
}

// Object decodes the object of the change.
func (c Change) Object() (Object, error) { return c.Kind.Decode(c.Data) }

// historyBytes bounds the changes that are kept for watchers that fall behind.
const historyBytes = 2 << 20

// history has the last changes in the order of their commits.
type history struct {
	mu      sync.Mutex
	changes []Change
	bytes   int // of their data
	// oldest is the version after which every change is in changes.
	oldest  uint64
	arrived chan struct{} // closed and replaced when changes arrive
}

func (h *history) publish(changes []Change) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes = append(h.changes, changes...)
	for _, change := range changes {
		h.bytes += len(change.Data)
	}
	if h.bytes > 2*historyBytes {
		h.trim()
	}
	close(h.arrived)
	h.arrived = make(chan struct{})
}

// trim forgets the oldest changes, at once as many as came since the last time.
func (h *history) trim() {
	surplus := 0
	for h.bytes > historyBytes && surplus < len(h.changes)-1 {
		h.bytes -= len(h.changes[surplus].Data)
		surplus++
	}
	if surplus == 0 {
		return // one change is more than all others may be
	}
	h.oldest = h.changes[surplus-1].Version
	h.changes = append([]Change(nil), h.changes[surplus:]...)
}

// after returns the changes after a version, and a channel to wait on if there are none.
func (h *history) after(version uint64) ([]Change, <-chan struct{}, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if version < h.oldest {
		return nil, nil, fmt.Errorf("%w: changes are known after %d, not after %d", ErrExpired, h.oldest, version)
	}
	first := sort.Search(len(h.changes), func(i int) bool { return h.changes[i].Version > version })
	return append([]Change(nil), h.changes[first:]...), h.arrived, nil
}

// Watch follows the changes after a version. It is used by one goroutine.
type Watch struct {
	history *history
	version uint64
}

// Watch follows every change after the version; see Tx.Version. It costs
// nothing while it is not asked.
func (s *Store) Watch(version uint64) *Watch { return &Watch{history: s.history, version: version} }

// Next returns the next changes, and waits for one if there are none. The error
// is ErrExpired for who fell behind, or the context's.
func (w *Watch) Next(ctx context.Context) ([]Change, error) {
	for {
		changes, arrived, err := w.history.after(w.version)
		if err != nil {
			return nil, err
		}
		if len(changes) > 0 {
			w.version = changes[len(changes)-1].Version
			return changes, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Poll is Next for who does not wait: it returns nothing if nothing changed.
func (w *Watch) Poll() ([]Change, error) {
	changes, _, err := w.history.after(w.version)
	if len(changes) > 0 {
		w.version = changes[len(changes)-1].Version
	}
	return changes, err
}
