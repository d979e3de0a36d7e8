package host

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const (
	// operationsAtOnce and questionsAtOnce bound the OS threads that calls of
	// Windows can block: a call cannot be interrupted, and each blocks one.
	operationsAtOnce = 128
	questionsAtOnce  = 128
	// questionsPerKey is how many of the threads one disk can keep.
	questionsPerKey = 4
	// gracePeriod is how long the caller of an operation whose context ended waits
	// for its error, which says what it was doing.
	gracePeriod = 250 * time.Millisecond
	// questionTimeout bounds the wait for one disk among many.
	questionTimeout = 5 * time.Second
)

// tasks runs calls that may block. Callers wait for a disk that does not answer as
// long as their contexts allow; callers of other disks do not wait.
//
// The second operation for a key waits and is not answered with Aborted: drivers of
// the group API do not know that answer and would fail the pod's start. The queue is
// in the order of arrival, so no caller starves.
type tasks struct {
	logger     *slog.Logger
	operations chan struct{}
	questions  chan struct{}

	mu    sync.Mutex
	gates map[string]*gate
}

func newTasks(logger *slog.Logger) *tasks {
	return &tasks{
		logger: logger, gates: map[string]*gate{},
		operations: make(chan struct{}, operationsAtOnce), questions: make(chan struct{}, questionsAtOnce),
	}
}

// gate lets a number of holders through, the others in the order of arrival.
type gate struct {
	holders []*pass
	waiting []*pass
}

type pass struct {
	ready chan struct{}
	since time.Time // when it was let through
}

// enter waits until the gate of a key admits the caller; at most limit callers are
// inside. The returned function leaves the gate and must be called once.
func (t *tasks) enter(ctx context.Context, key string, limit int) (leave func(), err error) {
	t.mu.Lock()
	g := t.gates[key]
	if g == nil {
		g = &gate{}
		t.gates[key] = g
	}
	p := &pass{ready: make(chan struct{})}
	g.waiting = append(g.waiting, p)
	t.admit(key, limit)
	t.mu.Unlock()
	leave = func() { t.leave(key, p, limit) }
	select {
	case <-p.ready:
		return leave, nil
	case <-ctx.Done():
		leave()
		return nil, fmt.Errorf("waiting for other calls about %s: %w", key, context.Cause(ctx))
	}
}

// leave removes a pass, admitted or not.
func (t *tasks) leave(key string, p *pass, limit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gates[key]
	isP := func(other *pass) bool { return other == p }
	g.holders, g.waiting = slices.DeleteFunc(g.holders, isP), slices.DeleteFunc(g.waiting, isP)
	t.admit(key, limit)
}

// admit lets waiting passes in. The caller holds the lock.
func (t *tasks) admit(key string, limit int) {
	g := t.gates[key]
	for len(g.holders) < limit && len(g.waiting) > 0 {
		next := g.waiting[0]
		g.waiting, g.holders = g.waiting[1:], append(g.holders, next)
		next.since = time.Now()
		close(next.ready)
	}
	if len(g.holders) == 0 {
		delete(t.gates, key)
	}
}

// stuckSince reports since when a key has had its holder, if that is longer than
// questionTimeout.
func (t *tasks) stuckSince(key string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.gates[key]; g != nil && len(g.holders) > 0 && time.Since(g.holders[0].since) >= questionTimeout {
		return g.holders[0].since, true
	}
	return time.Time{}, false
}

// enterAll takes a set of keys for one owner: in one order for all, so that two
// never wait for each other.
func (t *tasks) enterAll(ctx context.Context, keys []string) (leave func(), err error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	var entered []func()
	leave = func() {
		for _, l := range slices.Backward(entered) {
			l()
		}
	}
	for _, key := range keys {
		l, err := t.enter(ctx, key, 1)
		if err != nil {
			leave()
			return nil, err
		}
		entered = append(entered, l)
	}
	return leave, nil
}

// operate runs an operation with its keys locked. The caller is answered when its
// context ends; the keys stay locked until the operation is over, so that no other
// operation runs at the same time.
func operate[T any](ctx context.Context, t *tasks, keys []string, do func(context.Context) (T, error)) (T, error) {
	leave, err := t.enterAll(ctx, keys)
	if err != nil {
		var none T
		return none, err
	}
	return attend(ctx, t, t.operations, leave, do)
}

// ask runs a query, which changes nothing. Only a few queries of one key run at once, so
// that a dead disk cannot take all threads.
func ask[T any](ctx context.Context, t *tasks, key string, do func(context.Context) (T, error)) (T, error) {
	leave, err := t.enter(ctx, "questions about "+key, questionsPerKey)
	if err != nil {
		var none T
		return none, err
	}
	return attend(ctx, t, t.questions, leave, do)
}

// askBounded is ask for one of many things, of which none may block the others: it
// waits for questionTimeout, and not at all for one that has been stuck that long.
func askBounded[T any](ctx context.Context, t *tasks, key string, do func(context.Context) (T, error)) (T, error) {
	if since, stuck := t.stuckSince("questions about " + key); stuck {
		var none T
		return none, fmt.Errorf("%w: %s has not answered for %s", backend.ErrUnavailable, key, time.Since(since).Round(time.Second))
	}
	limited, cancel := context.WithTimeoutCause(ctx, questionTimeout,
		fmt.Errorf("%w: %s did not answer within %s", backend.ErrUnavailable, key, questionTimeout))
	defer cancel()
	return ask(limited, t, key, do)
}

// attend runs do in a goroutine of its own and leaves the gate after it.
func attend[T any](ctx context.Context, t *tasks, threads chan struct{}, leave func(), do func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case threads <- struct{}{}:
	case <-ctx.Done():
		leave()
		return none, fmt.Errorf("waiting for one of %d calls to end: %w", cap(threads), context.Cause(ctx))
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.value, r.err = guarded(ctx, t.logger, do)
		<-threads
		leave()
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(gracePeriod):
		return none, fmt.Errorf("no answer of Windows yet: %w; repeat the call, which finds what this one did", context.Cause(ctx))
	}
}

// guarded makes an error of a panic, which would end the whole proxy: the
// server's recovery does not reach this goroutine.
func guarded[T any](ctx context.Context, logger *slog.Logger, do func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			logger.Error("panic in an operation", "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal fault: %v", fault)
		}
	}()
	if err := ctx.Err(); err != nil {
		return value, context.Cause(ctx)
	}
	return do(ctx)
}

// poll calls done until it returns true, with growing pauses, at most for limit. It
// returns false if the time is up, and an error if the context ends or done fails.
func poll(ctx context.Context, limit time.Duration, done func() (bool, error)) (bool, error) {
	const first, longest = 20 * time.Millisecond, time.Second
	deadline := time.Now().Add(limit)
	for pause := first; ; pause = min(2*pause, longest) {
		if ok, err := done(); ok || err != nil {
			return ok, err
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(min(pause, left)):
		}
	}
}

// once runs one action for several callers. A caller that comes during a run shares
// the next one: the present run may have passed what the caller needs.
type once struct {
	mu            sync.Mutex
	running, next *run
}

type run struct {
	done chan struct{}
	err  error
}

// do waits for a run that begins after the call did.
func (o *once) do(ctx context.Context, action func() error) error {
	o.mu.Lock()
	var mine *run
	switch {
	case o.running == nil:
		mine = &run{done: make(chan struct{})}
		o.running = mine
		go o.run(action)
	case o.next == nil:
		o.next = &run{done: make(chan struct{})}
		mine = o.next
	default:
		mine = o.next
	}
	o.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return fmt.Errorf("no answer of Windows yet: %w", context.Cause(ctx))
	}
}

func (o *once) run(action func() error) {
	for {
		o.mu.Lock()
		current := o.running
		o.mu.Unlock()
		current.err = action()
		close(current.done)
		o.mu.Lock()
		o.running, o.next = o.next, nil
		ended := o.running == nil
		o.mu.Unlock()
		if ended {
			return
		}
	}
}
