// Package batch turns many lookups of one thing into few lookups of many
// things, without making a lone caller wait.
//
// A key goes out at once when nothing suggests that more will come. Where calls
// come in company (see Crowd), or while a call is under way, keys are gathered
// until no more arrive, for a few milliseconds at most; when several calls are
// under way already, until one of them ends. So a batch grows with the load and
// costs nothing without it.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Fetch looks keys up. A key that is absent from the answer does not exist. The
// context ends when no caller of any of the keys is left.
type Fetch[K comparable, V any] func(ctx context.Context, keys []K) (map[K]V, error)

// ErrClosed is what calls get that a closed Batcher had not answered.
var ErrClosed = errors.New("closed")

// Options shape a Batcher. The zero value is useful.
type Options struct {
	// Limit is how many keys one fetch takes; 200 when 0.
	Limit int
	// Quiet ends the gathering when no key came for so long; 5 ms when 0.
	Quiet time.Duration
	// Longest is how long keys are gathered at most; 10 ms when 0.
	Longest time.Duration
	// Patience is how long a batch waits for one of several running calls to
	// end, times their number; 250 ms when 0.
	Patience time.Duration
	// Crowd tells whether calls come in company; share one among Batchers whose
	// callers are the same. nil: one of its own.
	Crowd *Crowd
	// Split tells whether an error may be the fault of some of the keys. Such a
	// batch is halved until the key at fault fails alone. nil: never.
	Split func(error) bool
	// Join lets a caller share a call that began before it asked. Only for what
	// does not change: otherwise the answer may be older than what the caller
	// already did.
	Join bool
}

// Batcher looks keys up in batches. Make one with New.
type Batcher[K comparable, V any] struct {
	fetch  Fetch[K, V]
	o      Options
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	pending   map[K]*entry[K, V]
	order     []*entry[K, V] // of pending, oldest first; holds those that were left, too
	flying    map[K]*entry[K, V]
	gathering bool
	running   int
	small     int           // of the running, those that had room for more keys
	arrived   time.Time     // when the last key came
	changed   chan struct{} // told of arrivals, departures and ended calls; holds one
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

// New makes a Batcher. Close it.
func New[K comparable, V any](fetch Fetch[K, V], o Options) *Batcher[K, V] {
	o.Limit = orDefault(o.Limit, 200)
	o.Quiet = orDefault(o.Quiet, 5*time.Millisecond)
	o.Longest = orDefault(o.Longest, 10*time.Millisecond)
	o.Patience = orDefault(o.Patience, 250*time.Millisecond)
	if o.Crowd == nil {
		o.Crowd = new(Crowd)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Batcher[K, V]{
		fetch: fetch, o: o, ctx: ctx, cancel: cancel,
		pending: map[K]*entry[K, V]{}, flying: map[K]*entry[K, V]{},
		changed: make(chan struct{}, 1),
	}
}

func orDefault[T int | time.Duration](v, otherwise T) T {
	if v == 0 {
		return otherwise
	}
	return v
}

// Get looks a key up; found is false when it does not exist. It returns when
// its own context ends, whatever becomes of the shared call.
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

// Close ends all calls; whoever waits gets an error.
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
	b.o.Crowd.Arrive()
	e := b.pending[key]
	if e == nil && b.o.Join {
		e = b.flying[key]
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
		b.tell()
		return e, nil
	}
	b.gathering = true
	company := b.running > 0 || b.o.Crowd.Evident()
	b.tasks.Go(func() { b.gather(company) })
	return e, nil
}

// leave takes a caller away; what nobody waits for is not sent, or cancelled.
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
		b.tell()
		return
	}
	e.call.live--
	if e.call.live == 0 {
		e.call.cancel()
	}
}

// tell wakes the gatherer; the caller holds the lock.
func (b *Batcher[K, V]) tell() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// gather sends what is pending, after a wait when company is likely: full
// batches as soon as there are any, the rest when no more comes. One runs at a time.
func (b *Batcher[K, V]) gather(company bool) {
	for company && b.wait() {
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

// wait returns when a batch is full (true), or as large as it will get soon.
func (b *Batcher[K, V]) wait() (full bool) {
	began := time.Now()
	timer := time.NewTimer(b.o.Quiet)
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

// due is when a batch that began to gather then goes out, as things stand. The
// caller holds the lock.
func (b *Batcher[K, V]) due(began time.Time) time.Time {
	if b.small >= 2 {
		return began.Add(time.Duration(b.small) * b.o.Patience)
	}
	quiet, longest := b.arrived.Add(b.o.Quiet), began.Add(b.o.Longest)
	if quiet.Before(longest) {
		return quiet
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
		b.flying[e.key] = e
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
		b.tell()
		b.mu.Unlock()
	})
}

// run fetches a batch and answers its callers; a batch that fails for one of
// its keys is halved.
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
		if b.flying[e.key] == e {
			delete(b.flying, e.key)
		}
		if err == nil {
			e.value, e.found = values[e.key]
		}
		e.err = err
		close(e.done)
	}
	b.mu.Unlock()
}
