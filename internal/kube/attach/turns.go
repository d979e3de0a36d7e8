package attach

import "sync"

// turns lets an attachment be worked on by one queue at a time: attaching and
// detaching have queues of their own, and a VolumeAttachment that is deleted
// while the driver still publishes it is wanted by both.
type turns struct {
	mu   sync.Mutex
	busy map[string]func() // nil until somebody else wants the key
}

// take gives the key to the caller, until it calls done. If somebody else has
// it, ok is false, and again is called when that one is done.
func (t *turns) take(key string, again func()) (done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, busy := t.busy[key]; busy {
		t.busy[key] = again
		return nil, false
	}
	if t.busy == nil {
		t.busy = map[string]func(){}
	}
	t.busy[key] = nil
	return func() { t.done(key) }, true
}

func (t *turns) done(key string) {
	t.mu.Lock()
	waiting := t.busy[key]
	delete(t.busy, key)
	t.mu.Unlock()
	if waiting != nil {
		waiting()
	}
}

func (t *turns) taken(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, busy := t.busy[key]
	return busy
}
