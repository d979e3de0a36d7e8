package windows

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Call is one call that a process makes, as hooks, faults and the trace see it.
type Call struct {
	// Sequence counts the machine's calls, from 1.
	Sequence int
	// Name is a control code's name (IOCTL_DISK_GROW_PARTITION), or the method's:
	// Directory.Mkdir, Volumes.SetMountPoint, SMB.Create, Device.ReadAt.
	Name string
	// Targets are the objects of the call, the nearest first: a path, a volume's name,
	// "disk 2" and the disk's serial number, a share, an IQN, a service.
	Targets []string
	// Changes reports whether it may change the machine: a query need not be
	// crashed at.
	Changes bool

	opens bool // gives a handle, and so cannot be a false success
}

// Matches reports whether the call has the name and the target; "" is any.
func (c Call) Matches(name, target string) bool {
	if name != "" && !strings.EqualFold(name, c.Name) {
		return false
	}
	return target == "" || slices.ContainsFunc(c.Targets, func(t string) bool { return strings.EqualFold(t, target) })
}

// Action is the effect of a fault.
type Action string

// The actions. If an action lets the call continue, the faults that were injected
// later apply to it too.
const (
	// Fail returns the fault's Errno, and nothing has happened.
	Fail Action = "fail"
	// FailAfter returns it although the effect has happened; calls that open a
	// handle, which would have no owner, just succeed.
	FailAfter Action = "fail-after"
	// Pretend answers success, with nothing in the answer, and does nothing. Calls
	// that open a handle are done all the same.
	Pretend Action = "pretend"
	// Delay waits before the effect, for the fault's For or until the caller leaves.
	Delay Action = "delay"
	// Hang waits until Release, or until the caller leaves or dies.
	Hang Action = "hang"
	// DieBefore and DieAfter end the process before or after the effect.
	DieBefore Action = "die-before"
	DieAfter  Action = "die-after"
)

// Fault is an error of certain calls.
type Fault struct {
	// Call and Target choose the calls, see Call.Matches.
	Call, Target string
	// Changing restricts the fault to calls that may change the machine.
	Changing bool
	// At is the first of these calls that it happens to, from 1; 0 is 1.
	At int
	// Times is how many it happens to; 0 for all from then on.
	Times  int
	Action Action
	Errno  win32.Errno
	For    time.Duration
}

// Injected is a fault at work.
type Injected struct {
	m       *Machine
	fault   Fault
	seen    int
	hit     int
	waiting int
	release chan struct{}
	removed bool
}

// calls is the machine's book of calls.
type calls struct {
	sequence int
	faults   []*Injected
	hooks    []*hook
	record   bool
	trace    []Call
}

type hook struct{ f func(Call) }

// Inject puts a fault to work.
func (m *Machine) Inject(f Fault) *Injected {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := &Injected{m: m, fault: f, release: make(chan struct{})}
	m.calls.faults = append(m.calls.faults, i)
	return i
}

// Remove removes the fault and releases the calls that hang in it.
func (i *Injected) Remove() {
	i.Release()
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	i.m.calls.faults = slices.DeleteFunc(i.m.calls.faults, func(f *Injected) bool { return f == i })
}

// Release lets the hanging calls continue and all later calls pass.
func (i *Injected) Release() {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	if !i.removed {
		i.removed = true
		close(i.release)
	}
}

// Hits is how many calls it has happened to.
func (i *Injected) Hits() int {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	return i.hit
}

// Waiting is how many calls hang in it now.
func (i *Injected) Waiting() int {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	return i.waiting
}

// Hook has f called before each call's effect, without the machine's lock: it may
// change the machine, which is how a test wins a race.
func (m *Machine) Hook(f func(Call)) (remove func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := &hook{f}
	m.calls.hooks = append(m.calls.hooks, h)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls.hooks = slices.DeleteFunc(slices.Clone(m.calls.hooks), func(other *hook) bool { return other == h })
	}
}

// Record begins a new trace of calls; stop ends it and gives it. A sweep traces
// an operation once and then lets it die at each call: Fault{At: n, Action:
// DieBefore}, with Changing the changes only.
func (m *Machine) Record() (stop func() []Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls.record, m.calls.trace = true, nil
	return func() []Call {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.calls.record = false
		return slices.Clone(m.calls.trace)
	}
}

// Sweep are the numbers of the calls of a trace, from 1, at which a sweep injects
// its faults: all but most of the reads of a disk's sample, which is a long row.
func Sweep(trace []Call) []int {
	var at []int
	row := 0
	for i, call := range trace {
		if row++; call.Name != "Device.ReadAt" {
			row = 0
		}
		if row < sweepRow || row%101 == 0 || i+1 == len(trace) || trace[i+1].Name != "Device.ReadAt" {
			at = append(at, i+1)
		}
	}
	return at
}

// sweepRow is longer than a row of reads for any other reason.
const sweepRow = 20

// due books the call and picks the faults that happen to it.
func (b *calls) due(call *Call) []*Injected {
	b.sequence++
	call.Sequence = b.sequence
	if b.record {
		b.trace = append(b.trace, *call)
	}
	var due []*Injected
	for _, i := range b.faults {
		f := i.fault
		if i.removed || !call.Matches(f.Call, f.Target) || f.Changing && !call.Changes {
			continue
		}
		i.seen++
		if i.seen < max(f.At, 1) || f.Times > 0 && i.hit >= f.Times {
			continue
		}
		i.hit++
		due = append(due, i)
	}
	return due
}

// invoke makes a call. Its error wraps the number that Windows gives, as those of
// Windows' own calls may: a comparison with == is a defect.
func invoke[T any](ctx context.Context, c *client, call Call, effect func() (T, error)) (T, error) {
	result, err := perform(ctx, c, call, effect)
	if err != nil {
		err = fmt.Errorf("%s: %w", call.Name, err)
	}
	return result, err
}

// perform records the call, runs hooks, applies its faults, then performs its
// effect under the machine's lock. A waiting call does not hold the lock, so that
// a hung disk does not block other calls.
func perform[T any](ctx context.Context, c *client, call Call, effect func() (T, error)) (T, error) {
	var zero T
	c.m.mu.Lock()
	if c.dead {
		c.m.mu.Unlock()
		return zero, ErrDied
	}
	due, hooks := c.m.calls.due(&call), c.m.calls.hooks
	c.m.mu.Unlock()
	for _, h := range hooks {
		h.f(call)
	}
	for _, i := range due {
		if done, err := i.before(ctx, c, call); done || err != nil {
			return zero, err
		}
	}
	result, err := locked(c, effect)
	for _, i := range due {
		switch i.fault.Action {
		case DieAfter:
			c.m.mu.Lock()
			c.die()
			c.m.mu.Unlock()
			return zero, ErrDied
		case FailAfter:
			if err == nil && !call.opens {
				return zero, i.fault.Errno
			}
		}
	}
	return result, err
}

func locked[T any](c *client, effect func() (T, error)) (T, error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.dead {
		var zero T
		return zero, ErrDied
	}
	c.m.advance()
	return effect()
}

// before does the part of the fault before the effect; done is for a call that
// has no effect any more.
func (i *Injected) before(ctx context.Context, c *client, call Call) (done bool, err error) {
	switch i.fault.Action {
	case Fail:
		return true, i.fault.Errno
	case Pretend:
		return !call.opens, nil
	case Delay:
		timer := time.NewTimer(i.fault.For)
		defer timer.Stop()
		return false, i.wait(ctx, c, timer.C)
	case Hang:
		return false, i.wait(ctx, c, nil)
	case DieBefore:
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		c.die()
		return true, ErrDied
	}
	return false, nil
}

func (i *Injected) wait(ctx context.Context, c *client, passed <-chan time.Time) error {
	i.count(1)
	defer i.count(-1)
	select {
	case <-passed:
		return nil
	case <-i.release:
		return nil
	case <-c.died:
		return ErrDied
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *Injected) count(by int) {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	i.waiting += by
}

// none is the result of calls without one.
type none struct{}

// do makes a call without a result.
func do(ctx context.Context, c *client, call Call, effect func() error) error {
	_, err := invoke(ctx, c, call, func() (none, error) { return none{}, effect() })
	return err
}
