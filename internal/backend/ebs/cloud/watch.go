package cloud

import (
	"context"
	"sync"
	"time"
)

// How often a transition is polled.
const (
	pollFirst       = 50 * time.Millisecond // pause after the first poll without a result
	pollLongest     = time.Second           // pauses grow by half, up to this
	pollOldest      = 3 * time.Second       // for a wait that has lasted longer than oldWait
	oldWait         = time.Minute
	pollsAtOnce     = 20 // polls that may follow each other at once
	pollEvery       = 250 * time.Millisecond
	pollSlowly      = time.Second            // while EC2 throttles describes
	shareWithin     = 50 * time.Millisecond  // waits that are due within this share a poll
	shareManyWithin = 200 * time.Millisecond // the same, if the later ones are many
	many            = 8                      // and at least a fifth of the earlier ones
	pausesGrowBy    = 1.5
)

// guess returns how long EC2 usually takes for a kind of transition; 0 for an unknown
// kind. It is constant, because with a guess from measurements one slow operation would
// delay every later one.
func guess(kind string) time.Duration {
	switch kind {
	case "create":
		return 1500 * time.Millisecond
	case "attach", "detach", "modify":
		return 2 * time.Second
	case "snapshot":
		return 5 * time.Second
	}
	return 0
}

// watch serves all waits for one kind of resource with shared describes. Each
// wait obeys its own context. The watch has a goroutine only while there are waits.
type watch[V any] struct {
	ctx      context.Context // of the client
	tasks    *sync.WaitGroup
	describe func(ctx context.Context, keys []string) (map[string]V, error)
	first    time.Duration // replaces guess when above 0
	budget   *pollBudget

	mu      sync.Mutex
	waits   []*wait[V]
	running bool
	wake    chan struct{} // its buffer is one
}

// wait is one caller's.
type wait[V any] struct {
	key        string
	since, due time.Time
	vain       int // polls since it was due that did not end it
	poll       *poll[V]
	ended      bool
	seen       chan observation[V] // its buffer is one
}

// observation is the result of a poll for one wait.
type observation[V any] struct {
	value V
	found bool
	err   error
}

// poll is one describe for several waits.
type poll[V any] struct {
	began  time.Time
	waits  []*wait[V]
	cancel context.CancelFunc
	live   int // waits whose callers are still waiting
}

func newWatch[V any](
	c *Client, budget *pollBudget, first time.Duration, describe func(context.Context, []string) (map[string]V, error),
) *watch[V] {
	return &watch[V]{ctx: c.ctx, tasks: &c.tasks, describe: describe, first: first, budget: budget,
		wake: make(chan struct{}, 1)}
}

// until polls key until ready returns true or an error. ready runs in the
// caller's goroutine and never after until has returned.
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
				w.answer(waiting, true)
				if w.ctx.Err() != nil {
					return last, errClosed
				}
				return last, seen.err
			}
			last = seen.value
			done, err := ready(seen.value, seen.found)
			w.answer(waiting, done || err != nil)
			if done || err != nil {
				return last, err
			}
		}
	}
}

// enter adds a wait; nil if the client is closed. A transition that should have ended
// already is polled at once, and then like one that began now.
func (w *watch[V]) enter(key string, e Expect) *wait[V] {
	now, usual := time.Now(), guess(e.Kind)
	if w.first > 0 {
		usual = w.first
	}
	since := e.Since
	if since.IsZero() || since.After(now) { // EC2's clock can be ahead
		since = now
	}
	due := since.Add(usual)
	if due.Before(now) {
		since, due = now, now
	}
	waiting := &wait[V]{key: key, since: since, due: due, seen: make(chan observation[V], 1)}
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

// leave removes a wait; a poll without remaining waits is cancelled.
func (w *watch[V]) leave(waiting *wait[V]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting.ended = true
	if p := waiting.poll; p != nil {
		p.live--
		if p.live == 0 {
			p.cancel()
		}
	}
	w.stir()
}

// answer records that a caller has received the result of a poll. A wait that is not
// finished is polled again.
func (w *watch[V]) answer(waiting *wait[V], finished bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting.ended = finished
	if p := waiting.poll; p != nil && !finished {
		waiting.next(p.began)
	}
	waiting.poll = nil
	w.stir()
}

// next sets when to poll again after a poll that began at a time and did not end the
// wait: soon at first, then at growing intervals.
func (w *wait[V]) next(began time.Time) {
	now := time.Now()
	if began.Before(w.due) {
		return // others shared a poll with it before it was due
	}
	pause := pollFirst
	for range w.vain {
		pause = min(time.Duration(float64(pause)*pausesGrowBy), pollLongest)
	}
	w.vain++
	lasted := now.Sub(w.since)
	pause = max(pause, min(lasted/20, pollLongest))
	if lasted > oldWait {
		pause = pollOldest
	}
	w.due = now.Add(pause)
}

// run polls until no wait is left.
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
		at, ok := w.nextPoll()
		pause := time.Until(at)
		if ok && pause <= 0 {
			w.start()
			w.mu.Unlock()
			continue
		}
		w.mu.Unlock()
		if !ok {
			pause = time.Hour
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-w.wake:
		case <-w.ctx.Done():
			// The callers remove their waits; without waits the loop ends.
			<-w.wake
		}
	}
}

// drop removes the waits that have ended.
func (w *watch[V]) drop() {
	kept := w.waits[:0]
	for _, one := range w.waits {
		if !one.ended {
			kept = append(kept, one)
		}
	}
	clear(w.waits[len(kept):])
	w.waits = kept
}
