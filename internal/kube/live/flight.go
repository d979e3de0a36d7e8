package live

import (
	"context"
	"sync"
	"time"
)

// longestPause bounds how rarely something that hangs is asked.
const longestPause = time.Minute

// flight asks one question, once at a time however many want to know, and
// remembers the answer. A question that is not answered stays the only one: a
// driver that hangs is not asked more and more often, as livenessprobe did
// until its memory was full.
type flight struct {
	question func(context.Context) error
	timeout  time.Duration // for the question's context

	mu      sync.Mutex
	current *attempt
	last    answer
	pause   time.Duration // until the next question, after unanswered ones
}

// attempt is a question in progress.
type attempt struct {
	began time.Time
	done  chan struct{}
}

// answer is how a question ended. Its times are monotonic.
type answer struct {
	err   error
	at    time.Time     // when it came; zero when there was none yet
	asked time.Duration // > 0: the question in progress has waited so long
}

// ask gives an answer that is not older than fresh, waiting for a new one while
// ctx lasts. If there is none by then, it gives the last one and says how long
// the question in progress has waited.
func (f *flight) ask(ctx context.Context, fresh time.Duration) answer {
	current, last := f.join(max(fresh, time.Nanosecond)) //nolint:contextcheck // the question outlives who asked it first
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
		last.asked = max(time.Since(current.began), time.Nanosecond)
	}
	return last
}

// join finds the question in progress or begins one; nil when the last answer
// is fresh enough.
func (f *flight) join(fresh time.Duration) (*attempt, answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		return f.current, f.last
	}
	if !f.last.at.IsZero() && time.Since(f.last.at) < max(fresh, f.pause) {
		return nil, f.last
	}
	f.current = &attempt{began: time.Now(), done: make(chan struct{})}
	go f.put(f.current)
	return f.current, f.last
}

func (f *flight) put(current *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	err := f.question(ctx)
	cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = answer{err: err, at: time.Now()}
	if time.Since(current.began) < f.timeout {
		f.pause = 0
	} else {
		// A caller that gave up may have left work behind in the driver.
		f.pause = min(max(2*f.pause, 2*f.timeout), longestPause)
	}
	f.current = nil
	close(current.done)
}
