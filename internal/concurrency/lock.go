package concurrency

import (
	"errors"
	"sync"
)

// ErrBusy reports that another operation has the same key.
var ErrBusy = errors.New("operation pending")

// Locks are the keys that are locked now. The second caller of a key fails at
// once, so that a CSI call answers ABORTED instead of blocking a connection (CSI
// spec 1.13, "Concurrency"). The zero value is ready to use.
type Locks struct {
	mu sync.Mutex
	// locked counts the sharers of a key; exclusive means one owner.
	locked map[string]int
}

const exclusive = -1

// TryLock locks all the keys for one owner, or none. The returned function
// unlocks them and may be called once; ok is false when one of them is locked.
func (l *Locks) TryLock(keys ...string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.locked[key] != 0 {
			return nil, false
		}
	}
	for _, key := range keys {
		l.set(key, exclusive)
	}
	return func() { l.release(keys) }, true
}

// TryShare locks a key for one of any number of sharers, which exclude an owner
// and not each other.
func (l *Locks) TryShare(key string) (unlock func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.locked[key] == exclusive {
		return nil, false
	}
	l.set(key, l.locked[key]+1)
	return func() { l.release([]string{key}) }, true
}

func (l *Locks) set(key string, count int) {
	if l.locked == nil {
		l.locked = make(map[string]int)
	}
	l.locked[key] = count
}

func (l *Locks) release(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if l.locked[key] > 1 {
			l.locked[key]--
			continue
		}
		delete(l.locked, key)
	}
}
