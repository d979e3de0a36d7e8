// Package reconcile brings objects to their desired state: it follows the
// store's changes, and calls the controllers for the keys that they concern. A
// key is processed by one call at a time, is requeued if something changed
// during the call, and after a failure waits as long as the kubelet's volume
// operations do. Nothing polls: without a change, a failure or a requested
// requeue, no goroutine wakes.
//
// The queue is not client-go's workqueue, which internal/kube uses. That one
// wakes every ten seconds, has no partitions, cannot cancel a delay after a
// success, and does not report the state of a key or that nothing is due.
package reconcile

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// The kubelet's back-off of volume operations
// (k8s.io/kubernetes pkg/util/goroutinemap/exponentialbackoff).
const (
	FirstPause   = 500 * time.Millisecond
	LongestPause = 2*time.Minute + 2*time.Second
)

// parallel is how many keys of one partition are processed at the same time.
const parallel = 32

// State is the state of a key.
type State struct {
	Running   bool
	Since     time.Time // when the running call began
	Attempts  int       // failures in a row
	LastError error
	Next      time.Time // of the next attempt; zero: when something changes
}

// item is a key that is waiting, running or failing.
type item struct {
	State
	due bool // to be run as soon as its partition has room
	// begun is when the key became due for the first time since it last succeeded.
	begun time.Time
	// dueSince is when the key last became due.
	dueSince time.Time
	// What happened during the running call: anything, a change by another writer,
	// a call of Add.
	again, changed, added bool
	// writer identifies the writes of the key's calls. They do not shorten its
	// back-off: otherwise a driver that words the same failure differently each
	// time would be called without a pause.
	writer *store.Writer
	timer  *time.Timer
}

// Queue is the work of one controller.
type Queue struct {
	controller Controller
	// group has the queues of the controller's group in order, this one included.
	group []*Queue

	mu      *sync.Mutex // the group's
	items   map[string]*item
	busy    map[string]int      // running, by partition
	waiting map[string][]string // keys that are due, by partition, in order
	held    map[string]bool     // keys that are due and wait for another queue of the group
	points  *failpoint.Set
	// added counts the times that a key became due.
	added uint64
	// rested is called after each call, outside of everything.
	rested func()
	// call is the controller's Do with the context of Run, nil before Run and after it.
	call  func(writer *store.Writer, key string) (time.Duration, error)
	calls sync.WaitGroup
}

func newQueue(controller Controller) *Queue {
	q := &Queue{
		rested: func() {}, controller: controller, mu: &sync.Mutex{},
		items: map[string]*item{}, busy: map[string]int{}, waiting: map[string][]string{}, held: map[string]bool{},
	}
	q.group = []*Queue{q}
	return q
}

// Name is the controller's.
func (q *Queue) Name() string { return q.controller.Name }

// start lets calls begin, those for keys that were added before as well.
func (q *Queue) start(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.call = func(writer *store.Writer, key string) (time.Duration, error) {
		if err := q.points.HitFor("reconcile/call", q.controller.Name+" "+key); err != nil {
			return 0, err
		}
		return q.controller.Do(store.WithWriter(ctx, writer), key)
	}
	for partition := range maps.Clone(q.waiting) {
		q.fill(partition)
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

// Add requeues a key at once: its cause of waiting may have ended.
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
		it = &item{writer: q.writer(key)}
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
		it.due, it.dueSince = true, time.Now()
		if it.begun.IsZero() {
			it.begun = it.dueSince
		}
		q.added++
		q.enqueue(key)
	}
}

func (q *Queue) enqueue(key string) {
	partition := q.partition(key)
	q.waiting[partition] = append(q.waiting[partition], key)
	q.fill(partition)
}

// writer returns the writer of a key's calls, the same for the whole group.
func (q *Queue) writer(key string) *store.Writer {
	for _, other := range q.group {
		if it := other.items[key]; it != nil {
			return it.writer
		}
	}
	return &store.Writer{Name: q.controller.Name + " " + key}
}

// isHeld reports whether another queue of the group has precedence for a key: the key
// runs there, or is due there and that queue comes first.
func (q *Queue) isHeld(key string) bool {
	first := true
	for _, other := range q.group {
		if other == q {
			first = false
			continue
		}
		if it := other.items[key]; it != nil && (it.Running || first && it.due) {
			return true
		}
	}
	return false
}

// release lets the other queues of the group run a key that this one has run.
func (q *Queue) release(key string) {
	for _, other := range q.group {
		if other.held[key] {
			delete(other.held, key)
			other.enqueue(key)
		}
	}
}

// changed is Add for a change of an object, with who wrote that. A key that
// failed is tried sooner, but not at once; a write of its own call does not requeue it.
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

// Retry requeues every key that failed, and each whose running call fails.
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

// State returns the state of a key.
func (q *Queue) State(key string) State {
	q.mu.Lock()
	defer q.mu.Unlock()
	if it := q.items[key]; it != nil {
		return it.State
	}
	return State{}
}

// Busy reports whether a key is being processed or is due.
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
	return q.added, len(q.busy) > 0 || len(q.waiting) > 0 || len(q.held) > 0 || q.call == nil
}

func (q *Queue) partition(key string) string {
	if q.controller.Partition == nil {
		return ""
	}
	return q.controller.Partition(key)
}

// fill starts as many calls of a partition as it has room for.
func (q *Queue) fill(partition string) {
	for q.call != nil && q.busy[partition] < parallel && len(q.waiting[partition]) > 0 {
		key := q.waiting[partition][0]
		q.waiting[partition] = q.waiting[partition][1:]
		if q.isHeld(key) {
			q.held[key] = true
			continue
		}
		it := q.items[key]
		it.again, it.changed, it.added = false, false, false
		it.due, it.Running, it.Since, it.Next = false, true, time.Now(), time.Time{}
		q.busy[partition]++
		call := q.call
		q.calls.Go(func() {
			again, err := call(it.writer, key)
			q.finish(key, partition, again, err)
			q.rested()
		})
	}
	if len(q.waiting[partition]) == 0 {
		delete(q.waiting, partition)
	}
}

// finish decides when a key is processed next.
func (q *Queue) finish(key, partition string, again time.Duration, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy[partition]--; q.busy[partition] == 0 {
		delete(q.busy, partition)
	}
	it := q.items[key]
	it.Running = false
	if it.LastError = err; err == nil {
		it.Attempts, it.begun = 0, time.Time{}
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
	q.release(key)
	q.fill(partition)
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
