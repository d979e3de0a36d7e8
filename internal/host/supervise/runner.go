package supervise

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
)

// takeoverLimit is how long a new instance of a rolling unit has to register
// before the old one is kept in its place.
const takeoverLimit = 2 * time.Minute

// runner keeps the processes of one unit. Its own goroutine uses what is above
// the lock; the rest is guarded by it.
type runner struct {
	supervisor *Supervisor
	name       string
	record     *record
	instances  []*instance // oldest first
	ended      chan *instance
	nudge      chan struct{} // has a message when the unit changed
	pause      time.Duration
	retry      time.Time // no start before
	refused    string    // hash of the unit whose new instance did not register

	mu     sync.Mutex
	unit   *Unit // nil: to be stopped
	file   string
	told   bool // of its unit, or that it has none
	status Status
}

// instance is one process of a unit.
type instance struct {
	processRecord
	process *process
	offer   *plugins.Offer // nil for a driver that registers itself
	how     string         // it ended
	stopped bool           // it was told to end
}

func newRunner(s *Supervisor, name string, known *record) *runner {
	return &runner{
		supervisor: s, name: name, record: known, unit: known.Unit, file: known.File,
		ended: make(chan *instance, 4), nudge: make(chan struct{}, 1), status: Status{Since: time.Now()},
	}
}

// want gives the runner its unit; nil stops it.
func (r *runner) want(file string, unit *Unit) {
	r.mu.Lock()
	same := r.told && hashOf(r.unit) == hashOf(unit)
	r.unit, r.file, r.told = unit, file, true
	r.mu.Unlock()
	if same {
		return
	}
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// keep has the runner continue with what it knows: its file cannot be understood.
func (r *runner) keep() { file, unit := r.desired(); r.want(file, unit) }

func (r *runner) desired() (string, *Unit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file, r.unit
}

// run brings the processes to the unit until the context ends or the unit is
// gone and its processes with it.
func (r *runner) run(ctx context.Context) {
	r.adopt(ctx)
	select { // nothing is started or stopped before the files were read
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

// leave ends the supervision: the processes continue, or are stopped.
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

// step does the next thing, or waits for a reason to.
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

// wait returns at a change: of the unit, of a process, or of the time when a
// limit is given.
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
		r.bury(one)
	}
}

// takeover waits until the new instance is registered, and stops the old one
// then. One that does not get so far is stopped itself.
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
			r.bury(one)
			if one == young {
				r.refused = young.Hash
				r.say(StateRunning, errors.New("the changed unit's instance ended before it was registered: "+one.how+"; the one before goes on"))
			}
			return
		case <-limit:
			r.refused = young.Hash
			r.stop(ctx, young)
			r.say(StateRunning, errors.Join(errors.New("the changed unit's instance was not registered in time; the one before goes on"), failure))
			return
		}
	}
}

// withdraw lets the calls end that the instance has.
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

// bury removes a process that ended, and decides when the next is started.
func (r *runner) bury(one *instance) {
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
