package local

import (
	"context"
	"sync"
)

// attempts runs one attempt at a time, which outlives the call that began it: a
// filesystem that hangs must not keep the callers waiting.
type attempts struct {
	mu      sync.Mutex // not locked while an attempt runs
	running *attempt
	closed  bool
}

type attempt struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// begin starts an attempt and returns the channel of its result; errBeingOpened
// while another one runs, errClosed after close.
func (a *attempts) begin(ctx context.Context, try func(context.Context) error) (<-chan error, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, errClosed
	case a.running != nil:
		return nil, errBeingOpened
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
	return answer, nil
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
