package cloud

import (
	"context"
	"sync"
	"time"
)

// Looks of the watcher.
const (
	together    = 50 * time.Millisecond  // what is expected within is looked at at once
	crowded     = 200 * time.Millisecond // and within this, if it is many
	many        = 8                      // and at least a fifth of the others
	looksAtOnce = 20                     // looks that may follow each other freely
	lookEvery   = 250 * time.Millisecond
	lookSlowly  = time.Second // while EC2 throttles describes
	stepFirst   = 50 * time.Millisecond
	stepLongest = time.Second
	stepOldest  = 3 * time.Second // for what has taken more than oldWait
	oldWait     = time.Minute
)

// watch serves all waits for one kind of thing with common looks, instead of a
// loop per wait (reference: nobody sleeps blindly, every wait obeys its own
// context). It has a goroutine only while somebody waits.
type watch[V any] struct {
	ctx    context.Context // of the client
	tasks  *sync.WaitGroup
	look   func(ctx context.Context, keys []string) (map[string]V, error)
	learn  *learner
	budget *lookBudget

	mu      sync.Mutex
	waits   []*wait[V]
	running bool
	wake    chan struct{} // holds one
}

// wait is one caller's.
type wait[V any] struct {
	key, kind  string
	since, due time.Time
	looks      int  // after it was due
	late       bool // the wait began long after the transition
	looking    *look[V]
	left       bool
	seen       chan observation[V] // holds one
}

// observation is what a look showed to one wait.
type observation[V any] struct {
	value V
	found bool
	err   error
}

// look is one describe for several waits.
type look[V any] struct {
	began      time.Time
	waits      []*wait[V]
	cancel     context.CancelFunc
	live, open int // waits that are still there; answers that are missing
	done, not  map[string][]time.Duration
}

func newWatch[V any](c *Client, budget *lookBudget, learn *learner, ask func(context.Context, []string) (map[string]V, error)) *watch[V] {
	return &watch[V]{ctx: c.ctx, tasks: &c.tasks, look: ask, learn: learn, budget: budget, wake: make(chan struct{}, 1)}
}

// until looks at key until ready says true or fails. ready runs in the caller's
// goroutine and never after until has returned.
func (w *watch[V]) until(ctx context.Context, key string, e Expect, ready func(V, bool) (bool, error)) (V, error) {
	var last V
	waiting := w.enter(key, e)
	if waiting == nil {
		return last, errClosed
	}
	for {
		select {
		case <-ctx.Done():
			w.leave(waiting)
			return last, ctx.Err()
		case <-w.ctx.Done():
			w.leave(waiting)
			return last, errClosed
		case seen := <-waiting.seen:
			if seen.err != nil {
				w.answer(waiting, true, false)
				if w.ctx.Err() != nil {
					return last, errClosed
				}
				return last, seen.err
			}
			last = seen.value
			done, err := ready(seen.value, seen.found)
			w.answer(waiting, done || err != nil, done && err == nil)
			if done || err != nil {
				return last, err
			}
		}
	}
}

// enter adds a wait; nil when the client is closed.
func (w *watch[V]) enter(key string, e Expect) *wait[V] {
	now := time.Now()
	if e.Since.IsZero() {
		e.Since = now
	}
	waiting := &wait[V]{key: key, kind: e.Kind, since: e.Since, due: e.Since.Add(w.learn.expected(e.Kind)), seen: make(chan observation[V], 1)}
	if waiting.due.Before(now) {
		waiting.due, waiting.late = now, true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return nil
	}
	w.waits = append(w.waits, waiting)
	if w.running {
		w.stir()
	} else {
		w.running = true
		w.tasks.Go(w.run)
	}
	return waiting
}

// stir wakes the goroutine; the caller holds the lock.
func (w *watch[V]) stir() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// leave takes a wait away; a look that nobody waits for is cancelled.
func (w *watch[V]) leave(waiting *wait[V]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting.left = true
	if l := waiting.looking; l != nil {
		l.live--
		if l.live == 0 {
			l.cancel()
		}
		w.settle(waiting, false, false)
	}
	w.stir()
}

// answer tells what a wait made of what it saw; finished waits go.
func (w *watch[V]) answer(waiting *wait[V], finished, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting.left = finished
	l := waiting.looking
	w.settle(waiting, done, true)
	if !finished && l != nil {
		waiting.next(l.began)
	}
	w.stir()
}

// settle counts a wait's answer to its look; the last one teaches the learner.
func (w *watch[V]) settle(waiting *wait[V], done, answered bool) {
	l := waiting.looking
	if l == nil {
		return
	}
	waiting.looking = nil
	if answered {
		lasted := l.began.Sub(waiting.since)
		if done && waiting.late && waiting.looks == 0 {
			// How long it took is not known: it may have been done for hours.
		} else if done {
			l.done[waiting.kind] = append(l.done[waiting.kind], lasted)
		} else if !waiting.left {
			l.not[waiting.kind] = append(l.not[waiting.kind], lasted)
		}
	}
	l.open--
	if l.open > 0 {
		return
	}
	for kind, lasted := range l.done {
		w.learn.learn(kind, lasted, l.not[kind])
	}
	for kind, lasted := range l.not {
		if l.done[kind] == nil {
			w.learn.learn(kind, nil, lasted)
		}
	}
}

// next says when to look again after a look that began then found it not done:
// soon, and then ever more slowly.
func (w *wait[V]) next(began time.Time) {
	now := time.Now()
	if began.Before(w.due) {
		return // it was looked at with others, before its time
	}
	step := stepFirst
	for range w.looks {
		step = min(step*3/2, stepLongest)
	}
	w.looks++
	lasted := now.Sub(w.since)
	step = max(step, min(lasted/20, stepLongest))
	if lasted > oldWait {
		step = stepOldest
	}
	w.due = now.Add(step)
}

// run looks as long as somebody waits.
func (w *watch[V]) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.mu.Lock()
		w.drop()
		if len(w.waits) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		at, any := w.nextLook()
		left := time.Until(at)
		if any && left <= 0 {
			w.start()
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		if !any {
			left = time.Hour
		}
		timer.Reset(left)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.ctx.Done():
			// The waits leave by themselves; the last of them ends the loop.
			<-w.wake
		}
	}
}

// drop forgets the waits that have left.
func (w *watch[V]) drop() {
	kept := w.waits[:0]
	for _, one := range w.waits {
		if !one.left {
			kept = append(kept, one)
		}
	}
	clear(w.waits[len(kept):])
	w.waits = kept
}
