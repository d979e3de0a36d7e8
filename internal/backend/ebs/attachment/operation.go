package attachment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Use is the intended use of an attachment.
type Use struct {
	// Shared allows other instances to attach the volume too.
	Shared bool
	// Initialized requires that all data has been loaded from the snapshot; for
	// Options.Before.
	Initialized bool
}

// desired is the state that a call requests for a pair.
type desired struct {
	attach bool
	use    Use
}

func (d desired) String() string {
	if d.attach {
		return "attaching"
	}
	return "detaching"
}

// operation brings a pair to a desired state. Concurrent calls with the same desired
// state share it. It ends when it is done, when a call with another desired state
// supersedes it, or when its last caller has left. Machine.mu guards the fields below mu.
type operation struct {
	pair       pair
	desired    desired
	ctx        context.Context
	cancel     context.CancelFunc
	previous   *operation    // the superseded operation, which must end first, or nil
	done       chan struct{} // closed when device and err are set
	superseded chan struct{} // closed when a call with another desired state came

	device string
	err    error

	// mu:
	callers  int
	deadline time.Time // the latest of the callers' deadlines; zero: a caller has none
	started  bool      // deadline is set
	phase    string    // the current step, for error messages
}

// answerEarly is how long before its deadline a caller gets an error that names the
// current step. At the deadline it would only get DeadlineExceeded.
const answerEarly = 250 * time.Millisecond

// do brings a pair to a desired state, together with other calls for the same.
func (m *Machine) do(ctx context.Context, p pair, d desired) (string, error) {
	op, err := m.join(ctx, p, d)
	if err != nil {
		return "", err
	}
	defer m.leave(op)
	return m.await(ctx, op)
}

// join adds the caller to the pair's operation for the desired state. It starts one
// if there is none, and supersedes an operation for another state.
func (m *Machine) join(ctx context.Context, p pair, d desired) (*operation, error) {
	m.begin()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended.Err() != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
	}
	previous := m.operations[p]
	if previous != nil && previous.desired == d && previous.ctx.Err() == nil {
		previous.addCaller(ctx)
		return previous, nil
	}
	op := &operation{pair: p, desired: d, previous: previous, done: make(chan struct{}),
		superseded: make(chan struct{})}
	op.ctx, op.cancel = context.WithCancel(context.WithoutCancel(ctx))
	op.addCaller(ctx)
	if previous != nil {
		previous.supersede()
	}
	m.operations[p] = op
	m.running.Go(func() { m.run(op) })
	return op, nil
}

// addCaller adds a caller.
func (op *operation) addCaller(ctx context.Context) {
	op.callers++
	deadline, has := ctx.Deadline()
	switch {
	case !has:
		op.deadline = time.Time{}
	case !op.started || !op.deadline.IsZero() && deadline.After(op.deadline):
		op.deadline = deadline
	}
	op.started = true
}

func (op *operation) supersede() {
	select {
	case <-op.superseded:
	default:
		close(op.superseded)
	}
	op.cancel()
}

// leave removes a caller; the last one cancels the operation.
func (m *Machine) leave(op *operation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if op.callers--; op.callers == 0 {
		op.cancel()
	}
}

// run works on the pair after the operation that this one superseded has ended.
func (m *Machine) run(op *operation) {
	stop := context.AfterFunc(m.ended, op.cancel)
	defer stop()
	if op.previous != nil {
		<-op.previous.done // it was cancelled, and ends soon
		op.previous = nil
	}
	op.device, op.err = m.work(op)
	m.mu.Lock()
	if m.operations[op.pair] == op {
		delete(m.operations, op.pair)
	}
	m.mu.Unlock()
	op.cancel()
	close(op.done)
}

func (m *Machine) work(op *operation) (string, error) {
	if err := op.ctx.Err(); err != nil {
		return "", err
	}
	r := &run{m: m, op: op, pair: op.pair, desired: op.desired, began: time.Now()}
	if op.desired.attach {
		return r.attach(op.ctx)
	}
	return "", r.detach(op.ctx)
}

// await waits until the operation has ended or was superseded, or until shortly
// before the caller's deadline.
func (m *Machine) await(ctx context.Context, op *operation) (string, error) {
	early, stop := earlyAnswer(ctx)
	defer stop()
	select {
	case <-op.done:
		if op.err != nil && op.ctx.Err() != nil && isClosed(op.superseded) {
			return "", m.superseded(op)
		}
		if op.err != nil && m.ended.Err() != nil {
			return "", fmt.Errorf("%w: %w", backend.ErrUnavailable, errClosed)
		}
		return op.device, op.err
	case <-op.superseded:
		return "", m.superseded(op)
	case <-early:
		return "", fmt.Errorf("%w: %s; the operation continues; repeat the call", backend.ErrBusy, m.phase(op))
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w", m.phase(op), context.Cause(ctx))
	}
}

// earlyAnswer fires answerEarly before the context's deadline. It does not fire if the
// deadline is too near to leave time for the work.
func earlyAnswer(ctx context.Context) (<-chan time.Time, func()) {
	deadline, has := ctx.Deadline()
	if !has {
		return nil, func() {}
	}
	remaining := time.Until(deadline)
	if remaining < 10*answerEarly {
		return nil, func() {}
	}
	timer := time.NewTimer(remaining - answerEarly)
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

func (m *Machine) superseded(op *operation) error {
	return fmt.Errorf("%w: %s volume %s at instance %s was superseded by a later call in the other direction",
		backend.ErrBusy, op.desired, op.pair.volume, op.pair.instance)
}

// phase returns the current step of an operation.
func (m *Machine) phase(op *operation) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if op.phase == "" {
		return fmt.Sprintf("%s volume %s at instance %s: the driver is describing the attachments",
			op.desired, op.pair.volume, op.pair.instance)
	}
	return op.phase
}

// isContext reports whether an error is the error of an ended context.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
