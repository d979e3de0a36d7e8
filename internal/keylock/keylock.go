// Package keylock keeps two operations from working on one thing at a time. It
// never queues: whoever comes second is told at once, so that a CSI call
// answers ABORTED instead of holding a connection (CSI spec 1.13, "Concurrency").
package keylock

import "sync"

// Locks is a set of keys that are held now. The zero value is ready to use.
type Locks struct {
	mu   sync.Mutex
	held map[string]struct{}
}

// TryLock takes all the keys or none. The returned function gives them back
// and may be called once; ok is false when one of them is held.
func (l *Locks) TryLock(keys ...string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if _, taken := l.held[key]; taken {
			return nil, false
		}
	}
	if l.held == nil {
		l.held = make(map[string]struct{})
	}
	for _, key := range keys {
		l.held[key] = struct{}{}
	}
	return func() { l.release(keys) }, true
}

func (l *Locks) release(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		delete(l.held, key)
	}
}
