// Package keylock keeps operations that exclude each other from working on one
// key at the same time. Locks never queues: the second caller fails at once, so
// that a CSI call answers ABORTED instead of holding a connection
// (CSI spec 1.13, "Concurrency"). Queue makes the second caller wait.
package keylock

import "sync"

// Locks is a set of keys that are held now. The zero value is ready to use.
type Locks struct {
	mu sync.Mutex
	// held counts the sharers of a key; exclusive stands for its one owner.
	held map[string]int
}

const exclusive = -1

// TryLock takes all the keys for one owner, or none. The returned function
// gives them back and may be called once; ok is false when one of them is held.
func (l *Locks) TryLock(keys ...string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.held[key] != 0 {
			return nil, false
		}
	}
	for _, key := range keys {
		l.set(key, exclusive)
	}
	return func() { l.release(keys) }, true
}

// TryShare takes a key that any number of sharers may hold beside each other,
// but not beside an owner.
func (l *Locks) TryShare(key string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] == exclusive {
		return nil, false
	}
	l.set(key, l.held[key]+1)
	return func() { l.release([]string{key}) }, true
}

func (l *Locks) set(key string, count int) {
	if l.held == nil {
		l.held = make(map[string]int)
	}
	l.held[key] = count
}

func (l *Locks) release(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.held[key] > 1 {
			l.held[key]--
			continue
		}
		delete(l.held, key)
	}
}
