package local

import (
	"context"
	"sync"
)

// attempts runs one attempt at a time, which outlives the call that began it: a
// filesystem that hangs must not keep the callers waiting.
type attempts struct {
	mu      sync.Mutex // not held while an attempt runs
	running *attempt
	closed  bool
}

type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// begin starts an attempt, unless one runs or the attempts are closed, and returns
// the channel of its result.
func (a *attempts) begin(ctx context.Context, try func(context.Context) error) (result <-chan error, begun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil || a.closed {
		return nil, false
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	now := &attempt{cancel: cancel, done: make(chan struct{})}
	a.running = now
	answer := make(chan error, 1)
	go func() {
		defer cancel()
		err := try(ctx)
		a.mu.Lock()
		a.running = nil
		a.mu.Unlock()
		close(now.done)
		answer <- err
	}()
	return answer, true
}

// wait returns when no attempt runs.
func (a *attempts) wait() {
	a.mu.Lock()
	now := a.running
	a.mu.Unlock()
	if now != nil {
		<-now.done
	}
}

// close cancels the attempt that runs and waits for its end. No other begins.
func (a *attempts) close() {
	a.mu.Lock()
	a.closed = true
	now := a.running
	a.mu.Unlock()
	if now != nil {
		now.cancel()
		<-now.done
	}
}
