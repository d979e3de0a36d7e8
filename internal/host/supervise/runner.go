package supervise

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
)

// takeoverLimit is how long a new instance of a rolling unit may take to register.
// After that it is stopped, and the old one stays.
const takeoverLimit = 2 * time.Minute

// runner runs the processes of one unit. The fields above mu belong to its own
// goroutine.
type runner struct {
	supervisor *Supervisor
	name       string
	record     *record
	instances  []*instance // oldest first
	ended      chan *instance
	nudge      chan struct{} // has a message after the unit changed
	pause      time.Duration
	retry      time.Time // no start before
	refused    string    // hash of the unit whose new instance did not register

	mu      sync.Mutex
	unit    *Unit // nil: to be stopped
	file    string
	decided bool // the unit files were read: unit is current
	status  Status
}

// instance is one process of a unit.
type instance struct {
	processRecord
	process *process
	offer   *plugins.Offer // nil for a driver that registers itself
	how     string         // it ended
	stopped bool           // it was signalled to end
}

func newRunner(s *Supervisor, name string, known *record) *runner {
	return &runner{
		supervisor: s, name: name, record: known, unit: known.Unit, file: known.File,
		ended: make(chan *instance, 4), nudge: make(chan struct{}, 1), status: Status{Since: time.Now()},
	}
}

// setUnit sets the runner's unit; nil stops its processes.
func (r *runner) setUnit(file string, unit *Unit) {
	r.mu.Lock()
	same := r.decided && hashOf(r.unit) == hashOf(unit)
	r.unit, r.file, r.decided = unit, file, true
	r.mu.Unlock()
	if same {
		return
	}
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// keep lets the runner continue with its last unit, because the file is refused.
func (r *runner) keep() { file, unit := r.desired(); r.setUnit(file, unit) }

func (r *runner) desired() (string, *Unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file, r.unit
}

// run keeps the processes as the unit says, until the context ends, or until the
// unit is gone and its processes have ended.
func (r *runner) run(ctx context.Context) {
	r.adopt(ctx)
	select { // it starts and stops no process before the files were read
	case <-ctx.Done():
	case <-r.nudge:
	}
	for ctx.Err() == nil {
		if _, unit := r.desired(); unit == nil {
			r.stopAll(ctx)
			if len(r.instances) == 0 && ctx.Err() == nil {
				r.forget(ctx)
				return
			}
			continue
		}
		r.step(ctx)
	}
	r.leave() //nolint:contextcheck // the context has ended
}

// leave ends the supervision: it stops the processes with StopAtEnd, else they
// continue.
func (r *runner) leave() {
	if r.supervisor.options.StopAtEnd {
		r.stopAfterEnd()
	}
	for _, one := range r.instances {
		one.process.close()
	}
}

func (r *runner) forget(ctx context.Context) {
	if err := r.supervisor.records.remove(r.name); err != nil {
		r.supervisor.options.Logger.Error("the record of a driver's processes is not removed", "unit", r.name, "error", err)
	}
	r.supervisor.ended(ctx, r)
}

// step starts, replaces or stops one process, or waits for a change.
func (r *runner) step(ctx context.Context) {
	_, unit := r.desired()
	hash := hashOf(unit)
	switch {
	case len(r.instances) == 0:
		if wait := time.Until(r.retry); wait > 0 {
			r.wait(ctx, wait)
			return
		}
		r.start(ctx, unit, 0)
	case len(r.instances) > 1: // a takeover that an earlier host began
		r.takeover(ctx, unit)
	case r.instances[0].Hash == hash || r.refused == hash:
		r.wait(ctx, 0)
	case unit.Rolling && r.instances[0].offer != nil:
		if r.start(ctx, unit, 1-r.instances[0].Slot) {
			r.takeover(ctx, unit)
		} else {
			r.refused = hash
		}
	default:
		r.stop(ctx, r.instances[0])
		r.retry = time.Time{}
	}
}

// wait returns when the unit changed, when a process ended, or after limit if that
// is above zero.
func (r *runner) wait(ctx context.Context, limit time.Duration) {
	var due <-chan time.Time
	if limit > 0 {
		due = time.After(limit)
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-r.nudge:
		r.pause, r.retry, r.refused = 0, time.Time{}, "" // the unit changed: it is retried at once
	case one := <-r.ended:
		r.removeEnded(one)
	}
}

// takeover waits until the new instance is registered, and then stops the old one.
// If the new one does not register in time, takeover stops it instead.
func (r *runner) takeover(ctx context.Context, unit *Unit) {
	old, young := r.instances[0], r.instances[len(r.instances)-1]
	if young.offer == nil {
		r.stop(ctx, old)
		return
	}
	limit := time.After(takeoverLimit)
	for {
		registered, changed, failure := young.offer.State()
		if registered {
			r.say(StateRunning, nil)
			r.withdraw(ctx, old, unit)
			r.stop(ctx, old)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.nudge:
			if _, now := r.desired(); hashOf(now) != young.Hash {
				r.stop(ctx, young)
				return
			}
		case one := <-r.ended:
			r.removeEnded(one)
			if one == young {
				r.refused = young.Hash
				r.say(StateRunning, errors.New("the changed unit's instance ended before it was registered: "+one.how+"; the instance before continues"))
			}
			return
		case <-limit:
			r.refused = young.Hash
			r.stop(ctx, young)
			r.say(StateRunning, errors.Join(errors.New("the changed unit's instance was not registered in time; the instance before continues"), failure))
			return
		}
	}
}

// withdraw unregisters an instance and waits, up to the unit's stopGrace, until its
// calls have ended.
func (r *runner) withdraw(ctx context.Context, one *instance, unit *Unit) {
	if one.offer == nil {
		return
	}
	done := one.offer.Withdraw()
	one.offer = nil
	select {
	case <-done:
	case <-ctx.Done():
	case <-time.After(unit.StopGrace.Duration):
	}
}

// removeEnded removes a process that ended, and decides when the next one is started.
func (r *runner) removeEnded(one *instance) {
	if one.offer != nil {
		one.offer.Withdraw()
		one.offer = nil
	}
	one.process.close()
	r.instances = slices.DeleteFunc(r.instances, func(other *instance) bool { return other == one })
	r.record.Processes = slices.DeleteFunc(r.record.Processes, func(p processRecord) bool { return p.Token == one.Token })
	r.save()
	if one.stopped || len(r.instances) > 0 {
		return
	}
	r.backOff(time.Since(one.Started))
	r.supervisor.options.Logger.Warn("a driver ended", "unit", r.name, "pid", one.PID, "how", one.how, "retry", r.pause)
	r.say(StateWaiting, errors.New("it ended by itself: "+one.how))
	r.mu.Lock()
	r.status.Restarts++
	r.mu.Unlock()
}

// backOff doubles the pause before the next start, unless this one went well for
// long enough.
func (r *runner) backOff(lived time.Duration) {
	_, unit := r.desired()
	if unit == nil {
		return
	}
	if r.pause *= 2; r.pause == 0 || lived >= unit.Restart.Stable.Duration {
		r.pause = unit.Restart.First.Duration
	}
	r.pause = min(r.pause, unit.Restart.Longest.Duration)
	r.retry = time.Now().Add(r.pause)
}

func (r *runner) save() {
	if err := r.supervisor.records.write(r.name, r.record); err != nil {
		r.supervisor.options.Logger.Error("the record of a driver's processes is not written", "unit", r.name, "error", err)
	}
}
