package lease

import (
	"sync"
	"time"
)

// term is the time for which the work may run. Each renewal of the lease extends it.
// When it ends, by a timeout or because another process holds the lease, lose
// cancels the work.
//
// A timer ends the term, independent of the goroutine that renews, so that the work
// ends on this process's clock before the lease expires on any other clock:
//   - The term counts from before the renewal was sent. Others count from when they
//     observed the renewed lease, which is later.
//   - It ends an eighth of the lease's duration before the lease does, a margin for
//     clocks of different speeds and for the end of the work.
type term struct {
	length time.Duration
	clock  clock
	lose   func(why string)

	mu   sync.Mutex
	held bool
	over bool
	stop func() bool // stops the timer that ends the term
}

func newTerm(o Options, lose func(why string)) *term {
	length := o.seconds() * 7 / 8
	return &term{length: min(length, o.RetryPeriod+o.RenewDeadline), clock: o.clock, lose: lose}
}

// renewed extends the term for a lease that was renewed by a request sent at that
// time. It returns false if the term has ended.
func (t *term) renewed(sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	remaining := t.length - t.clock.Now().Sub(sent)
	if t.over || !t.held && remaining <= 0 {
		return false // the lease had expired when the answer came
	}
	t.held = true
	if t.stop != nil {
		t.stop()
	}
	t.stop = t.clock.AfterFunc(remaining, func() { t.lost("it was not renewed in time") })
	return true
}

// lost ends a term that has begun and has not ended.
func (t *term) lost(why string) {
	t.mu.Lock()
	first := t.held && !t.over
	t.over = t.over || t.held
	t.mu.Unlock()
	if first {
		t.lose(why)
	}
}

// end stops the timer after the work has returned.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.stop != nil {
		t.stop()
	}
}
