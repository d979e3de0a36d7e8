// Package reconcile brings objects from what is to what is wanted: it follows
// the store's changes, and calls the controllers for the keys they concern. A
// key is worked on by one call at a time, is looked at again if something
// changed meanwhile, and after a failure waits as long as the kubelet's volume
// operations do. Nothing polls: without a change, a failure or a wish to look
// again, no goroutine wakes; the queue of client-go, which internal/kube has,
// wakes every ten seconds, and has no lanes.
package reconcile

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The kubelet's back-off of volume operations
// (k8s.io/kubernetes pkg/util/goroutinemap/exponentialbackoff).
const (
	FirstPause   = 500 * time.Millisecond
	LongestPause = 2*time.Minute + 2*time.Second
)

// parallel is how many keys of one lane are worked on at once.
const parallel = 32

// State is where a key stands, for those who explain.
type State struct {
	Running   bool
	Since     time.Time // when the running call began
	Attempts  int       // failures in a row
	LastError error
	Next      time.Time // when it is tried again; zero: when something changes
}

// item is a key that is waiting, running or failing.
type item struct {
	State
	due bool // to be run as soon as its lane has room
	// What came while it ran: anything, a change that another wrote, somebody who
	// wants it looked at.
	again, changed, added bool
	// writer is who the key's calls write as: a call that fails and writes the
	// object is no reason to hurry, or a driver that words the same failure
	// otherwise each time would never be left alone.
	writer *store.Writer
	timer  *time.Timer
}

// Queue is the work of one controller.
type Queue struct {
	controller Controller

	mu      sync.Mutex
	items   map[string]*item
	busy    map[string]int      // running, by lane
	waiting map[string][]string // keys that are due, by lane, in order
	// added counts how often a key became due.
	added uint64
	// rested is called after each call, outside of everything.
	rested func()
	// call is the controller's Do with the context of Run, nil while nothing may begin.
	call  func(writer *store.Writer, key string) (time.Duration, error)
	calls sync.WaitGroup
}

func newQueue(controller Controller) *Queue {
	return &Queue{rested: func() {}, controller: controller, items: map[string]*item{}, busy: map[string]int{}, waiting: map[string][]string{}}
}

// Name is the controller's.
func (q *Queue) Name() string { return q.controller.Name }

// start lets calls begin, those for keys that were added before as well.
func (q *Queue) start(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.call = func(writer *store.Writer, key string) (time.Duration, error) {
		return q.controller.Do(store.WithWriter(ctx, writer), key)
	}
	for lane := range maps.Clone(q.waiting) {
		q.fill(lane)
	}
}

// stop ends when no call runs any more; the context of start has ended.
func (q *Queue) stop() {
	q.mu.Lock()
	for _, it := range q.items {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
	q.call = nil
	q.mu.Unlock()
	q.calls.Wait()
}

// Add has a key worked on, at once: what it waits for may have happened.
func (q *Queue) Add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(key)
}

// wake is Add at the end of a pause, unless something else ended it just before.
func (q *Queue) wake(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil && it.timer != nil {
		q.add(key)
	}
}

func (q *Queue) add(key string) {
	it := q.items[key]
	if it == nil {
		it = &item{writer: &store.Writer{}}
		q.items[key] = it
	}
	switch {
	case it.Running:
		it.again, it.added = true, true
	case !it.due:
		if it.timer != nil {
			it.timer.Stop()
			it.timer = nil
		}
		it.due = true
		q.added++
		lane := q.lane(key)
		q.waiting[lane] = append(q.waiting[lane], key)
		q.fill(lane)
	}
}

// changed is Add for a change of an object, with who wrote that. A key that
// failed is tried sooner, but not at once; what its own call wrote is no reason.
func (q *Queue) changed(key string, writer *store.Writer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	switch {
	case it != nil && it.Running:
		it.again, it.changed = true, it.changed || writer != it.writer
	case it == nil || it.due || it.LastError == nil:
		q.add(key)
	case writer == it.writer:
	default:
		if sooner := time.Now().Add(FirstPause); it.timer != nil && sooner.Before(it.Next) && it.timer.Stop() {
			it.Next = sooner
			it.timer.Reset(FirstPause)
		}
	}
}

// Retry has every key that failed tried now, and those whose call is about to.
func (q *Queue) Retry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, it := range q.items {
		switch {
		case it.Running:
			it.added = true
		case it.LastError != nil:
			q.add(key)
		}
	}
}

// State tells where a key stands.
func (q *Queue) State(key string) State {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		return it.State
	}
	return State{}
}

// Busy reports whether a key is worked on, or is about to be.
func (q *Queue) Busy(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.items[key]
	return it != nil && (it.Running || it.due)
}

// work is the part of Set.work in one queue.
func (q *Queue) work() (added uint64, busy bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.added, len(q.busy) > 0 || len(q.waiting) > 0 || q.call == nil
}

func (q *Queue) lane(key string) string {
	if q.controller.Lane == nil {
		return ""
	}
	return q.controller.Lane(key)
}

// fill starts as many calls of a lane as it has room for.
func (q *Queue) fill(lane string) {
	for q.call != nil && q.busy[lane] < parallel && len(q.waiting[lane]) > 0 {
		key := q.waiting[lane][0]
		q.waiting[lane] = q.waiting[lane][1:]
		it := q.items[key]
		it.again, it.changed, it.added = false, false, false
		it.due, it.Running, it.Since, it.Next = false, true, time.Now(), time.Time{}
		q.busy[lane]++
		call := q.call
		q.calls.Go(func() {
			again, err := call(it.writer, key)
			q.finish(key, lane, again, err)
			q.rested()
		})
	}
	if len(q.waiting[lane]) == 0 {
		delete(q.waiting, lane)
	}
}

// finish decides when a key is looked at next.
func (q *Queue) finish(key, lane string, again time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[lane]--; q.busy[lane] == 0 {
		delete(q.busy, lane)
	}
	it := q.items[key]
	it.Running = false
	if it.LastError = err; err == nil {
		it.Attempts = 0
	} else {
		it.Attempts++
		again = pauseAfter(it.Attempts)
		if soon, ok := errors.AsType[*within](err); ok {
			again = min(again, soon.limit)
		}
		if it.changed { // the call may not have seen it
			again = FirstPause
		}
	}
	switch {
	case it.again && err == nil, it.added && err != nil:
		q.add(key)
	case again > 0:
		it.Next = time.Now().Add(again)
		it.timer = time.AfterFunc(again, func() { q.wake(key) })
	default:
		delete(q.items, key)
	}
	q.fill(lane)
}

// within is a failure that is tried again sooner than others.
type within struct {
	error
	limit time.Duration
}

func (w *within) Unwrap() error { return w.error }

// Within has the key that failed tried again after the limit at most.
func Within(err error, limit time.Duration) error {
	if err == nil {
		return nil
	}
	return &within{err, limit}
}

func pauseAfter(attempts int) time.Duration {
	pause := FirstPause
	for range min(attempts, 16) - 1 {
		pause *= 2
	}
	return min(pause, LongestPause)
}
