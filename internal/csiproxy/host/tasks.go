package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

const (
	// operationsAtOnce and questionsAtOnce bound the OS threads that calls of
	// Windows can block: a call cannot be interrupted, and each blocks one.
	operationsAtOnce = 128
	questionsAtOnce  = 128
	// questionsPerKey bounds the threads that the questions about one disk can block.
	questionsPerKey = 4
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
	queue      concurrency.Queue
	operations chan struct{}
	questions  chan struct{}

	mu sync.Mutex
	// asked has, by key, when each running question began, the oldest first.
	asked map[string][]time.Time
}

func newTasks(logger *slog.Logger) *tasks {
	return &tasks{
		logger: logger, operations: make(chan struct{}, operationsAtOnce), questions: make(chan struct{}, questionsAtOnce),
		asked: map[string][]time.Time{},
	}
}

// lock locks keys for one owner. All callers lock in the same order, so that two
// never wait for each other.
func (t *tasks) lock(ctx context.Context, keys []string) (unlock func(), err error) {
	var locked []func()
	unlock = func() {
		for _, u := range slices.Backward(locked) {
			u()
		}
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		u, err := t.queue.Lock(ctx, key)
		if err != nil {
			unlock()
			return nil, err
		}
		locked = append(locked, u)
	}
	return unlock, nil
}

// operate runs an operation with its keys locked. The caller is answered when its
// context ends; the keys stay locked until the operation returns, so that no other
// operation runs at the same time.
func operate[T any](ctx context.Context, t *tasks, keys []string, do func(context.Context) (T, error)) (T, error) {
	unlock, err := t.lock(ctx, keys)
	if err != nil {
		var none T
		return none, err
	}
	return onThread(ctx, t, t.operations, unlock, do)
}

// run is operate for an operation without a result.
func run(ctx context.Context, t *tasks, keys []string, do func(context.Context) error) error {
	_, err := operate(ctx, t, keys, noResult(do))
	return err
}

// noResult makes a function without a result one with an empty result.
func noResult[A any](do func(A) error) func(A) (struct{}, error) {
	return func(a A) (struct{}, error) { return struct{}{}, do(a) }
}

// ask runs a query, which changes nothing. Only a few queries of one key run at once, so
// that a dead disk cannot take all threads.
func ask[T any](ctx context.Context, t *tasks, key string, do func(context.Context) (T, error)) (T, error) {
	leave, err := t.queue.Enter(ctx, "questions about "+key, questionsPerKey)
	if err != nil {
		var none T
		return none, err
	}
	ended := t.began(key)
	return onThread(ctx, t, t.questions, func() { ended(); leave() }, do)
}

// began records that a question about a key runs, until the returned function is called.
func (t *tasks) began(key string) (ended func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	start := time.Now()
	t.asked[key] = append(t.asked[key], start)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		running := t.asked[key]
		if len(running) == 1 {
			delete(t.asked, key)
			return
		}
		i := slices.Index(running, start)
		t.asked[key] = slices.Delete(running, i, i+1)
	}
}

// oldest returns when the oldest running question about a key began.
func (t *tasks) oldest(key string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if running := t.asked[key]; len(running) > 0 {
		return running[0], true
	}
	return time.Time{}, false
}

// askBounded is ask for one of many things, of which none may block the others: it
// waits for questionTimeout, and not at all for one that has been stuck that long.
func askBounded[T any](ctx context.Context, t *tasks, key string, do func(context.Context) (T, error)) (T, error) {
	if start, ok := t.oldest(key); ok && time.Since(start) >= questionTimeout {
		var none T
		return none, fmt.Errorf("%w: %s has not answered for %s", backend.ErrUnavailable, key,
			time.Since(start).Round(time.Second))
	}
	limited, cancel := context.WithTimeoutCause(ctx, questionTimeout,
		fmt.Errorf("%w: %s did not answer within %s", backend.ErrUnavailable, key, questionTimeout))
	defer cancel()
	return ask(limited, t, key, do)
}

// onThread runs do when one of the threads is free. The caller is answered when its
// context ends; ended is called when do has returned.
func onThread[T any](
	ctx context.Context, t *tasks, threads chan struct{}, ended func(), do func(context.Context) (T, error),
) (T, error) {
	select {
	case threads <- struct{}{}:
	case <-ctx.Done():
		ended()
		var none T
		return none, fmt.Errorf("wait for one of %d calls to end: %w", cap(threads), context.Cause(ctx))
	}
	return concurrency.Detach(ctx, t.logger, func() { <-threads; ended() }, do)
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
		remaining := time.Until(deadline)
		if remaining <= 0 {
			return false, nil
		}
		if err := concurrency.Sleep(ctx, min(pause, remaining)); err != nil {
			return false, err
		}
	}
}

// freshCall shares one action among its callers. Each gets the result of a run that
// began after its call: an earlier run may have passed what the caller needs.
type freshCall struct {
	logger *slog.Logger
	begun  atomic.Int64 // the number of the last run
	queue  concurrency.Queue
	// ended is the number of the last run that returned, and err its error. Both need
	// the lock of the queue.
	ended int64
	err   error
}

// do runs the action, or waits for a run of another caller.
func (f *freshCall) do(ctx context.Context, action func() error) error {
	earlier := f.begun.Load()
	unlock, err := f.queue.Lock(ctx, "the call of another caller")
	if err != nil {
		return err
	}
	if f.ended > earlier {
		defer unlock()
		return f.err
	}
	_, err = concurrency.Detach(ctx, f.logger, unlock, noResult(func(context.Context) error {
		number := f.begun.Add(1)
		f.ended, f.err = number, action()
		return f.err
	}))
	return err
}
