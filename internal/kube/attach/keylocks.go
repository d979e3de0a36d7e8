package attach

import "sync"

// keyLocks lets one queue at a time work on an attachment. Attaching and detaching
// have queues of their own, and both have the key of a VolumeAttachment that is
// deleted while the driver still publishes it.
type keyLocks struct {
	mu      sync.Mutex
	waiting map[string]func() // a locked key; nil until another caller waits for it
}

// tryLock locks the key until the caller calls done. If the key is locked already,
// ok is false, and again is called when it is unlocked.
func (l *keyLocks) tryLock(key string, again func()) (done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, locked := l.waiting[key]; locked {
		l.waiting[key] = again
		return nil, false
	}
	if l.waiting == nil {
		l.waiting = map[string]func(){}
	}
	l.waiting[key] = nil
	return func() { l.unlock(key) }, true
}

func (l *keyLocks) unlock(key string) {
	l.mu.Lock()
	again := l.waiting[key]
	delete(l.waiting, key)
	l.mu.Unlock()
	if again != nil {
		again()
	}
}

func (l *keyLocks) locked(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, locked := l.waiting[key]
	return locked
}
