package concurrency

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// gracePeriod is how long an operation whose context ended may still return what
// it was doing before its caller is answered.
const gracePeriod = 250 * time.Millisecond

// Runner runs operations: one at a time for a key, each answered when its
// caller's context ends. Make one with NewRunner.
type Runner struct {
	log   *slog.Logger
	locks Locks

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running returns to 0
}

// NewRunner makes a Runner; the logger may be nil.
func NewRunner(log *slog.Logger) *Runner {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runner{log: log}
}

// Wait returns when no operation runs any more, or with the context's error.
// An operation whose caller left may still be inside a system call.
func (r *Runner) Wait(ctx context.Context) error {
	r.mu.Lock()
	idle, running := r.idle, r.running
	r.mu.Unlock()
	if running == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("operations are still running: %w", ctx.Err())
	}
}

// begin counts an operation. A sync.WaitGroup does not allow Add from zero while
// Wait runs, and a call may arrive while Wait waits.
func (r *Runner) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == 0 {
		r.idle = make(chan struct{})
	}
	r.running++
}

func (r *Runner) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running--; r.running == 0 {
		close(r.idle)
	}
}

// Run runs an operation while its keys are locked; ErrBusy when one is locked by
// another. Some system calls cannot be interrupted (umount writes back dirty data,
// a dead device does not answer): the caller is answered when its context ends,
// and the keys stay locked until the call returns, so that no second operation
// starts in between.
func (r *Runner) Run(ctx context.Context, what string, keys []string, do func(context.Context) error) error {
	_, err := RunResult(ctx, r, what, keys, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

// RunResult is Run for an operation with a result. A result that arrives after
// the caller was answered is dropped.
func RunResult[T any](
	ctx context.Context, r *Runner, what string, keys []string, do func(context.Context) (T, error),
) (T, error) {
	var none T
	unlock, ok := r.locks.TryLock(keys...)
	if !ok {
		return none, fmt.Errorf("%s: %w: another call for it is running", what, ErrBusy)
	}
	r.begin()
	value, err := Detach(ctx, r.log.With("operation", what), func() { unlock(); r.end() }, do)
	if err != nil {
		return none, fmt.Errorf("%s: %w", what, err)
	}
	return value, nil
}

// Detach runs an operation in a new goroutine and returns its result. When
// the context ends, the operation gets gracePeriod to return; after that the caller
// gets an error that wraps the context's cause, and the operation continues. Detach
// calls ended once, when the operation has returned, and returns a result after that:
// the next operation of the caller needs what ended releases. A panic becomes an error.
func Detach[T any](
	ctx context.Context, log *slog.Logger, ended func(), do func(context.Context) (T, error),
) (T, error) {
	var (
		value          T
		err            error
		returned, done = make(chan struct{}), make(chan struct{})
	)
	go func() {
		defer close(done)
		value, err = guarded(ctx, log, do)
		close(returned)
		ended()
	}()
	select {
	case <-returned:
	case <-ctx.Done():
		select {
		case <-returned:
		case <-time.After(gracePeriod):
			var none T
			return none, fmt.Errorf("%w while a system call is running; the repeated call finds its result", context.Cause(ctx))
		}
	}
	<-done // a context that ends now does not change the result
	return value, err
}

// guarded turns a panic of the operation into an error: the recovery of a gRPC
// server does not reach this goroutine.
func guarded[T any](ctx context.Context, log *slog.Logger, do func(context.Context) (T, error)) (value T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			log.Error("panic in an operation", "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("internal fault: %v", fault)
		}
	}()
	if ctx.Err() != nil {
		return value, context.Cause(ctx)
	}
	return do(ctx)
}
