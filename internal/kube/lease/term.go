package lease

import (
	"sync"
	"time"
)

// term is the time for which the work may run. Each renewal of the lease puts its
// end off; when it ends, by itself or because another process has the lease, the
// work is told to end.
//
// It is shorter than the lease, whatever happens to the goroutine that renews,
// so that the work has ended on this process's clock before the lease has run
// out on anybody else's:
//   - It counts from before the request that renewed the lease was sent; others
//     count from when they saw the renewed lease, which is later.
//   - It ends an eighth of the lease's duration before the lease does: that is
//     for clocks that go at different speeds, and for the work to end.
type term struct {
	length time.Duration
	clock  clock
	lose   func(why string)

	mu   sync.Mutex
	held bool
	over bool
	stop func() bool // the timer of its end
}

func newTerm(o Options, lose func(why string)) *term {
	length := o.seconds() * 7 / 8
	return &term{length: min(length, o.RetryPeriod+o.RenewDeadline), clock: o.clock, lose: lose}
}

// renewed puts the end off, for a lease that was renewed by a request sent then.
// It is false when the term has ended.
func (t *term) renewed(sent time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.length - t.clock.Now().Sub(sent)
	if t.over || !t.held && left <= 0 {
		return false // it did not begin: its time was over when the answer came
	}
	t.held = true
	if t.stop != nil {
		t.stop()
	}
	t.stop = t.clock.AfterFunc(left, func() { t.lost("it was not renewed in time") })
	return true
}

// lost ends the term, if it has begun and has not ended.
func (t *term) lost(why string) {
	t.mu.Lock()
	first := t.held && !t.over
	t.over = t.over || t.held
	t.mu.Unlock()
	if first {
		t.lose(why)
	}
}

// end is that of the work: the time is watched no more.
func (t *term) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	if t.stop != nil {
		t.stop()
	}
}
