package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Use is what a volume is attached for.
type Use struct {
	// Shared allows that other instances have the volume too.
	Shared bool
	// Initialized is for Options.Before: the volume is wanted with all its data.
	Initialized bool
}

// wish is what a call wants of a pair.
type wish struct {
	attach bool
	use    Use
}

func (w wish) String() string {
	if w.attach {
		return "attaching"
	}
	return "detaching"
}

// flight is the work for one wish. All calls that want the same at the same
// time share it; it ends when it is done, when a call wants something else, or
// when all its callers have left. Fields below mu are guarded by Machine.mu.
type flight struct {
	pair      pair
	wish      wish
	ctx       context.Context
	cancel    context.CancelFunc
	previous  *flight       // what must end first, or nil
	done      chan struct{} // closed when device and err are set
	overruled chan struct{} // closed when a later call wants something else

	device string
	err    error

	// mu:
	callers  int
	deadline time.Time // the latest of the callers'; zero: one has none
	started  bool      // deadline is set
	phase    string    // what is being waited for, for error messages
}

// answerEarly is how long before its deadline a caller gets to know what is
// being waited for; after it he would only know that his time is up.
const answerEarly = 250 * time.Millisecond

// do makes the wish true, together with other calls that want the same.
func (m *Machine) do(ctx context.Context, p pair, w wish) (string, error) {
	f, err := m.board(ctx, p, w)
	if err != nil {
		return "", err
	}
	defer m.leave(f)
	return m.await(ctx, f)
}

// board finds the flight for a wish or starts one, overruling one for another wish.
func (m *Machine) board(ctx context.Context, p pair, w wish) (*flight, error) {
	m.begin()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended.Err() != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	m.sweep(time.Now())
	e := m.entry(p)
	if e.flight != nil && e.flight.wish == w && e.flight.ctx.Err() == nil {
		e.flight.join(ctx)
		return e.flight, nil
	}
	f := &flight{pair: p, wish: w, previous: e.flight, done: make(chan struct{}), overruled: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.join(ctx)
	if e.flight != nil {
		e.flight.overrule()
	}
	e.flight = f
	m.running.Go(func() { m.fly(f) })
	return f, nil
}

// join adds a caller.
func (f *flight) join(ctx context.Context) {
	f.callers++
	deadline, has := ctx.Deadline()
	switch {
	case !has:
		f.deadline = time.Time{}
	case !f.started || !f.deadline.IsZero() && deadline.After(f.deadline):
		f.deadline = deadline
	}
	f.started = true
}

func (f *flight) overrule() {
	select {
	case <-f.overruled:
	default:
		close(f.overruled)
	}
	f.cancel()
}

// leave takes a caller off; the last one ends the flight.
func (m *Machine) leave(f *flight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.callers--; f.callers == 0 {
		f.cancel()
	}
}

// fly does the work when the flight before it has ended.
func (m *Machine) fly(f *flight) {
	stop := context.AfterFunc(m.ended, f.cancel)
	defer stop()
	if f.previous != nil {
		<-f.previous.done // it was cancelled, and ends soon
		f.previous = nil
	}
	f.device, f.err = m.work(f)
	m.mu.Lock()
	if e := m.entry(f.pair); e.flight == f {
		e.flight = nil
	}
	m.mu.Unlock()
	f.cancel()
	close(f.done)
}

func (m *Machine) work(f *flight) (string, error) {
	if err := f.ctx.Err(); err != nil {
		return "", err
	}
	r := &run{m: m, f: f, pair: f.pair, wish: f.wish, began: time.Now()}
	if f.wish.attach {
		return r.attach(f.ctx)
	}
	return "", r.detach(f.ctx)
}

// await waits for the flight's end, for a call that wants something else, or for
// the caller's own time to be up.
func (m *Machine) await(ctx context.Context, f *flight) (string, error) {
	early, stop := earlyAnswer(ctx)
	defer stop()
	select {
	case <-f.done:
		if f.err != nil && f.ctx.Err() != nil && isClosed(f.overruled) {
			return "", m.overruled(f)
		}
		if f.err != nil && m.ended.Err() != nil {
			return "", fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
		}
		return f.device, f.err
	case <-f.overruled:
		return "", m.overruled(f)
	case <-early:
		return "", fmt.Errorf("%w: %s; it goes on, repeat the call", backend.ErrBusy, m.phase(f))
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", m.phase(f), context.Cause(ctx))
	}
}

// earlyAnswer fires a little before the context's deadline, if that is not too
// near to leave any time for the work.
func earlyAnswer(ctx context.Context) (<-chan time.Time, func()) {
	deadline, has := ctx.Deadline()
	if !has {
		return nil, func() {}
	}
	left := time.Until(deadline)
	if left < 10*answerEarly {
		return nil, func() {}
	}
	timer := time.NewTimer(left - answerEarly)
	return timer.C, func() { timer.Stop() }
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (m *Machine) overruled(f *flight) error {
	return fmt.Errorf("%w: a later call wants volume %s otherwise at %s; this one, %s it, was given up",
		backend.ErrBusy, f.pair.volume, f.pair.instance, f.wish)
}

// phase says what a flight waits for.
func (m *Machine) phase(f *flight) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.phase == "" {
		return fmt.Sprintf("%s volume %s at instance %s: EC2 was asked what is attached", f.wish, f.pair.volume, f.pair.instance)
	}
	return f.phase
}

// isContext reports whether an error is only that a context ended.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
