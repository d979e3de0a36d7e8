// Package operation runs the calls of a node engine: one at a time for a key,
// each answered when its caller's context ends, and none lost when the process
// does. The engines of all systems use it.
package operation

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/keylock"
)

// afterword is how long an operation whose context ended gets to say what it
// was doing before its caller is answered.
const afterword = 250 * time.Millisecond

// Runner runs operations. Make one with New.
type Runner struct {
	log   *slog.Logger
	locks keylock.Locks

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none of those that run now does any more
}

// New makes a Runner; the logger may be nil.
func New(log *slog.Logger) *Runner {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Runner{log: log}
}

// Keys of the locks: one per volume and one per target path. Two calls of
// Unpublish for one volume may run at once, as the kubelet's do.

// VolumeKey is the key of a volume.
func VolumeKey(id string) string { return "volume " + id }

// TargetKey is the key of a target path.
func TargetKey(path string) string { return "target " + path }

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
		return fmt.Errorf("node operations are still running: %w", ctx.Err())
	}
}

// begin counts an operation. A sync.WaitGroup would not do: it must not be waited
// for while it is counted up from zero, and a call may come while Wait waits.
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

// Run runs an operation while its keys are held; ErrBusy when one is taken.
// Some system calls cannot be interrupted (umount writes back dirty data, a dead
// device answers nothing): the caller is answered when its context ends, and the
// keys stay held until the call is over, so that no second operation gets
// between.
func (r *Runner) Run(ctx context.Context, what string, keys []string, do func(context.Context) error) error {
	unlock, ok := r.locks.TryLock(keys...)
	if !ok {
		return fmt.Errorf("%s: %w: another call for it is running", what, backend.ErrBusy)
	}
	done := make(chan error, 1)
	r.begin()
	go func() {
		defer r.end()
		err := r.guarded(ctx, what, do)
		unlock()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(afterword):
		return fmt.Errorf("%s: %w while a system call is running; the repeated call finds what it did", what, context.Cause(ctx))
	}
}

// Result is Run for an operation that finds something out. What it finds too
// late, after its caller was answered, goes nowhere.
func Result[T any](ctx context.Context, r *Runner, what string, keys []string, do func(context.Context) (T, error)) (T, error) {
	found := make(chan T, 1)
	err := r.Run(ctx, what, keys, func(ctx context.Context) error {
		value, err := do(ctx)
		found <- value
		return err
	})
	if err != nil {
		var none T
		return none, err
	}
	return <-found, nil
}

// guarded turns a panic of the operation's goroutine into an error: the
// driver's own recovery cannot reach this goroutine.
func (r *Runner) guarded(ctx context.Context, what string, do func(context.Context) error) (err error) {
	defer func() {
		if fault := recover(); fault != nil {
			r.log.Error("panic in a node operation", "operation", what, "panic", fault, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: internal fault: %v", what, fault)
		}
	}()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
