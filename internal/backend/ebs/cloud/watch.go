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
	looks      int // after it was due
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
		waiting.due = now
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
		if done {
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

// nextLook is when to look: when all are due that are due shortly after the
// first, and when the budget of looks allows. Crowds that have drifted apart are
// brought together again: each costs looks for as long as they last.
func (w *watch[V]) nextLook() (at time.Time, any bool) {
	for _, one := range w.waits {
		if one.looking == nil && (!any || one.due.Before(at)) {
			at, any = one.due, true
		}
	}
	if !any {
		return at, false
	}
	near, far, nears, fars := at, at, 0, 0
	for _, one := range w.waits {
		switch later := one.due.Sub(at); {
		case one.looking != nil || later > crowded:
		case later <= together:
			near, nears = latest(near, one.due), nears+1
		default:
			far, fars = latest(far, one.due), fars+1
		}
	}
	if at = near; fars >= many && fars*5 >= nears {
		at = far
	}
	if allowed := w.budget.next(); allowed.After(at) {
		at = allowed
	}
	return at, true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start looks at what is due, and at what may be done already where a describe
// has room for it.
func (w *watch[V]) start() {
	now := time.Now()
	keys := map[string]bool{}
	var due []*wait[V]
	for _, one := range w.waits {
		if one.looking == nil && !one.due.After(now) {
			due, keys[one.key] = append(due, one), true
		}
	}
	room := (filterLimit - len(keys)%filterLimit) % filterLimit
	for _, one := range w.waits {
		if room == 0 {
			break
		}
		halfway := now.Sub(one.since) >= one.due.Sub(one.since)/2
		if one.looking == nil && one.due.After(now) && one.looks == 0 && halfway {
			due = append(due, one)
			if !keys[one.key] {
				keys[one.key] = true
				room--
			}
		}
	}
	for len(due) > 0 {
		due = due[w.startOne(now, due):]
	}
}

// startOne begins a look for as many of the waits as one describe takes, and
// says for how many.
func (w *watch[V]) startOne(now time.Time, due []*wait[V]) int {
	keys := make([]string, 0, min(len(due), filterLimit))
	has := map[string]bool{}
	n := 0
	for _, one := range due {
		if !has[one.key] {
			if len(keys) == filterLimit {
				break
			}
			has[one.key] = true
			keys = append(keys, one.key)
		}
		n++
	}
	ctx, cancel := context.WithCancel(w.ctx)
	l := &look[V]{began: now, waits: due[:n:n], cancel: cancel, live: n, open: n,
		done: map[string][]time.Duration{}, not: map[string][]time.Duration{}}
	for _, one := range l.waits {
		one.looking = l
	}
	w.budget.spend()
	w.tasks.Go(func() {
		defer cancel()
		w.show(l, ctx, keys)
	})
	return n
}

// show does a look and shows its waits what it found.
func (w *watch[V]) show(l *look[V], ctx context.Context, keys []string) {
	values, err := w.look(ctx, keys)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range l.waits {
		if one.left || one.looking != l {
			continue
		}
		seen := observation[V]{err: err}
		if err == nil {
			seen.value, seen.found = values[one.key]
		}
		one.seen <- seen
	}
}
