package live

import (
	"context"
	"sync"
	"time"
)

// longestPause limits the pause between calls of a check that hangs.
const longestPause = time.Minute

// check runs one function for all callers, one call at a time, and caches its
// result. While a call hangs, no second one starts: livenessprobe starts a new
// call for each request, which fills its memory while a driver hangs.
type check struct {
	run     func(context.Context) error
	timeout time.Duration // of a call's context

	mu      sync.Mutex
	current *attempt
	last    result
	pause   time.Duration // until the next call, after calls that timed out
}

// attempt is a call in progress.
type attempt struct {
	began time.Time
	done  chan struct{}
}

// result is the outcome of a call. Its times are monotonic.
type result struct {
	err     error
	at      time.Time     // when the call ended; zero before the first result
	waiting time.Duration // > 0: the duration so far of the call in progress
}

// result returns a result that is not older than fresh; it waits for a new one
// until ctx ends. If there is none by then, it returns the last result and the
// duration so far of the call in progress.
func (f *check) result(ctx context.Context, fresh time.Duration) result {
	current, last := f.join(max(fresh, time.Nanosecond)) //nolint:contextcheck // the call outlives its first caller
	if current == nil {
		return last
	}
	select {
	case <-current.done:
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	last = f.last
	if f.current == current {
		last.waiting = max(time.Since(current.began), time.Nanosecond)
	}
	return last
}

// join returns the call in progress or starts one. It returns nil if the last result
// is fresh enough.
func (f *check) join(fresh time.Duration) (*attempt, result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		return f.current, f.last
	}
	if !f.last.at.IsZero() && time.Since(f.last.at) < max(fresh, f.pause) {
		return nil, f.last
	}
	f.current = &attempt{began: time.Now(), done: make(chan struct{})}
	go f.call(f.current)
	return f.current, f.last
}

func (f *check) call(current *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	err := f.run(ctx)
	cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = result{err: err, at: time.Now()}
	if time.Since(current.began) < f.timeout {
		f.pause = 0
	} else {
		// The driver may still work on a call that timed out.
		f.pause = min(max(2*f.pause, 2*f.timeout), longestPause)
	}
	f.current = nil
	close(current.done)
}
