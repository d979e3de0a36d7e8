package concurrency

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// Fetch reads keys. A key that is absent from the answer does not exist. The
// context ends when no caller of any of the keys is left.
type Fetch[K comparable, V any] func(ctx context.Context, keys []K) (map[K]V, error)

// ErrClosed is the error of calls that a closed Batcher had not answered.
var ErrClosed = errors.New("closed")

const (
	defaultLimit = 200
	// gatherGap ends the gathering when no key arrived for so long.
	gatherGap = 5 * time.Millisecond
	// gatherMost bounds the gathering of keys.
	gatherMost = 10 * time.Millisecond
	// runningMost bounds how long a batch waits for one of several running calls to
	// end, times their number.
	runningMost = 250 * time.Millisecond
)

// BatchOptions shape a Batcher. The zero value is useful.
type BatchOptions struct {
	// Limit is the number of keys that one fetch takes; 200 when 0.
	Limit int
	// Bursts expects bursts of calls; share one among Batchers whose callers are
	// the same. nil: a new one.
	Bursts *BurstDetector
	// Split reports whether an error may be the fault of some of the keys. Such a
	// batch is halved until the key at fault fails alone. nil: never.
	Split func(error) bool
	// Join lets a caller share a call that began before its own. Only for values that do
	// not change: otherwise the answer may be older than an effect of the caller.
	Join bool
}

// Batcher turns many lookups of one key into few lookups of many keys, and a lone
// caller does not wait for it. Make one with NewBatcher.
//
// A key is sent at once if nothing suggests that more will follow. In a burst (see
// BurstDetector), or while a call is running, keys are gathered until no more
// arrive, for a few milliseconds at most; while several calls are running, until
// one of them ends. So a batch grows with the load and costs nothing without it.
type Batcher[K comparable, V any] struct {
	fetch  Fetch[K, V]
	o      BatchOptions
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	pending   map[K]*entry[K, V]
	order     []*entry[K, V] // of pending, oldest first, with those that lost their callers
	inFlight  map[K]*entry[K, V]
	gathering bool
	running   int
	small     int           // of the running, those that had room for more keys
	arrived   time.Time     // when the last key arrived
	changed   chan struct{} // notified of arrivals, departures and ended calls; its buffer is one
}

// entry is a key that was asked for and not answered.
type entry[K comparable, V any] struct {
	key     K
	callers int
	call    *call // nil until it is sent
	done    chan struct{}
	value   V
	found   bool
	err     error
}

// call is one fetch, with those it was split into.
type call struct {
	live   int // entries that still have callers
	cancel context.CancelFunc
}

// NewBatcher makes a Batcher. Close it.
func NewBatcher[K comparable, V any](fetch Fetch[K, V], o BatchOptions) *Batcher[K, V] {
	o.Limit = cmp.Or(o.Limit, defaultLimit)
	if o.Bursts == nil {
		o.Bursts = new(BurstDetector)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Batcher[K, V]{
		fetch: fetch, o: o, ctx: ctx, cancel: cancel,
		pending: map[K]*entry[K, V]{}, inFlight: map[K]*entry[K, V]{},
		changed: make(chan struct{}, 1),
	}
}

// Get reads a key; found is false when it does not exist. It returns when
// its own context ends; the shared call continues for the others.
func (b *Batcher[K, V]) Get(ctx context.Context, key K) (value V, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return value, false, err
	}
	e, err := b.enter(key)
	if err != nil {
		return value, false, err
	}
	select {
	case <-e.done:
		return e.value, e.found, e.err
	case <-ctx.Done():
		b.leave(e)
		return value, false, ctx.Err()
	}
}

// Close ends all calls; those that wait get an error.
func (b *Batcher[K, V]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.tasks.Wait()
}

// enter adds a caller to the key's entry, or makes one.
func (b *Batcher[K, V]) enter(key K) (*entry[K, V], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	b.o.Bursts.Add()
	e := b.pending[key]
	if e == nil && b.o.Join {
		e = b.inFlight[key]
	}
	if e != nil && e.callers > 0 {
		e.callers++
		return e, nil
	}
	e = &entry[K, V]{key: key, callers: 1, done: make(chan struct{})}
	b.pending[key] = e
	b.order = append(b.order, e)
	b.arrived = time.Now()
	if b.gathering {
		b.notify()
		return e, nil
	}
	b.gathering = true
	burst := b.running > 0 || b.o.Bursts.Active()
	b.tasks.Go(func() { b.gather(burst) })
	return e, nil
}

// leave removes a caller. A key without callers is not sent; a call without
// callers is cancelled.
func (b *Batcher[K, V]) leave(e *entry[K, V]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.callers--
	if e.callers > 0 {
		return
	}
	if e.call == nil {
		if b.pending[e.key] == e {
			delete(b.pending, e.key)
		}
		b.notify()
		return
	}
	e.call.live--
	if e.call.live == 0 {
		e.call.cancel()
	}
}

// notify wakes the gatherer; the caller holds the lock.
func (b *Batcher[K, V]) notify() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// gather sends the pending keys, in a burst after a wait: full batches as soon as
// there are any, the rest when no more arrive. One runs at a time.
func (b *Batcher[K, V]) gather(burst bool) {
	for burst && b.wait() {
		b.mu.Lock()
		b.sendPending(false)
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gathering = false
	b.sendPending(true)
}

// sendPending sends the pending keys in full batches and, if asked to, the rest.
// The caller holds the lock.
func (b *Batcher[K, V]) sendPending(rest bool) {
	var left []*entry[K, V]
	for _, e := range b.order {
		if e.callers == 0 {
			continue
		}
		left = append(left, e)
		if len(left) == b.o.Limit {
			b.send(left)
			left = nil
		}
	}
	if rest && len(left) > 0 {
		b.send(left)
		left = nil
	}
	b.order = left
}

// wait returns when a batch is full (true), or when no more keys are likely to
// arrive soon.
func (b *Batcher[K, V]) wait() (full bool) {
	began := time.Now()
	timer := time.NewTimer(gatherGap)
	defer timer.Stop()
	for {
		b.mu.Lock()
		left, pending := time.Until(b.due(began)), len(b.pending)
		b.mu.Unlock()
		if pending >= b.o.Limit {
			return true
		}
		if pending == 0 || left <= 0 {
			return false
		}
		timer.Reset(left)
		select {
		case <-timer.C:
		case <-b.changed:
		case <-b.ctx.Done():
			return false
		}
	}
}

// due is when a batch that began to gather then is sent, if nothing changes. The
// caller holds the lock.
func (b *Batcher[K, V]) due(began time.Time) time.Time {
	if b.small >= 2 {
		return began.Add(time.Duration(b.small) * runningMost)
	}
	gap, longest := b.arrived.Add(gatherGap), began.Add(gatherMost)
	if gap.Before(longest) {
		return gap
	}
	return longest
}

// send starts the call for a batch; the caller holds the lock.
func (b *Batcher[K, V]) send(batch []*entry[K, V]) {
	ctx, cancel := context.WithCancel(b.ctx)
	c := &call{live: len(batch), cancel: cancel}
	for _, e := range batch {
		e.call = c
		delete(b.pending, e.key)
		b.inFlight[e.key] = e
	}
	small := 0
	if len(batch) < b.o.Limit {
		small = 1
	}
	b.running++
	b.small += small
	b.tasks.Go(func() {
		defer cancel()
		b.run(ctx, batch)
		b.mu.Lock()
		b.running--
		b.small -= small
		b.notify()
		b.mu.Unlock()
	})
}

// run fetches a batch and answers its callers; a batch that fails for one of its keys is
// halved.
func (b *Batcher[K, V]) run(ctx context.Context, batch []*entry[K, V]) {
	keys := make([]K, len(batch))
	for i, e := range batch {
		keys[i] = e.key
	}
	values, err := b.fetch(ctx, keys)
	if err != nil && len(batch) > 1 && ctx.Err() == nil && b.o.Split != nil && b.o.Split(err) {
		var halves sync.WaitGroup
		half := len(batch) / 2
		halves.Go(func() { b.run(ctx, batch[:half]) })
		b.run(ctx, batch[half:])
		halves.Wait()
		return
	}
	if err != nil && b.ctx.Err() != nil {
		err = errors.Join(ErrClosed, err)
	}
	b.mu.Lock()
	for _, e := range batch {
		if b.inFlight[e.key] == e {
			delete(b.inFlight, e.key)
		}
		if err == nil {
			e.value, e.found = values[e.key]
		}
		e.err = err
		close(e.done)
	}
	b.mu.Unlock()
}
