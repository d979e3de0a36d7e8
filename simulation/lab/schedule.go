package lab

import (
	"fmt"
	"testing/synctest"
	"time"
)

// Action is something that happens besides the steps of the processes.
type Action struct {
	Name string
	Do   func()
	// Weight is how often it is chosen compared with others; 0 means 1.
	Weight int
}

// Plan says what may happen. The zero value has the processes take their steps in any
// order, without actions.
type Plan struct {
	// Actions returns the actions that are possible now, the harmless ones first. It may be
	// nil.
	Actions func() []Action
	// ActionEvery is the average number of steps for each action; 0 means 6.
	ActionEvery int
	// FaultEvery is the average number of steps for each fault; 0 means 8.
	FaultEvery int
	// DelayEvery is the average number of steps between two periods in which steps that
	// could be taken wait; 0 means 12.
	DelayEvery int
	// Idle is how long Chaos waits, at most, for a step when none waits, before an action is
	// done; 0 means 20 minutes.
	Idle time.Duration
	// Check returns an error if an invariant does not hold. It is called after each step,
	// when every goroutine waits. It may be nil.
	Check func() error
}

const (
	defaultActionEvery = 6
	defaultFaultEvery  = 8
	defaultDelayEvery  = 12
	// idleAfter is the time without a step after which nothing more is expected by itself.
	idleAfter = 20 * time.Minute
	// longest and mostSteps limit Converge.
	longest   = time.Hour
	mostSteps = 20_000
)

// delays are the periods for which steps wait.
func delays() []time.Duration {
	return []time.Duration{
		10 * time.Millisecond, time.Second, 3 * time.Second, 11 * time.Second, 31 * time.Second, 2 * time.Minute, 7 * time.Minute,
	}
}

// Chaos takes so many more steps, with faults, delays and actions. The error is that of
// Check.
func (l *Lab) Chaos(steps int, plan Plan) error {
	for last := l.trace.steps + steps; l.trace.steps < last; {
		if err := l.settle(plan); err != nil {
			return err
		}
		ready := l.ready()
		switch {
		case l.OneIn(or(plan.ActionEvery, defaultActionEvery)):
			l.act(plan)
		case len(ready) == 0:
			if !l.advance(or(plan.Idle, idleAfter)) {
				l.act(plan)
			}
		case l.OneIn(or(plan.DelayEvery, defaultDelayEvery)):
			l.advance(Pick(l, delays()...))
		default:
			l.takeOne(ready, plan)
		}
	}
	return l.settle(plan)
}

// Converge takes steps, without faults, until done returns nil while no step waits. The
// error is that of Check, or that of done when nothing happens any more.
func (l *Lab) Converge(plan Plan, done func() error) error {
	l.Calm()
	begun, first := l.Elapsed(), l.trace.steps
	for {
		if err := l.settle(plan); err != nil {
			return err
		}
		if ready := l.ready(); len(ready) > 0 {
			l.takeOne(ready, plan)
			if l.trace.steps-first < mostSteps {
				continue
			}
		}
		err := done()
		if err == nil {
			return nil
		}
		if moved := l.advance(idleAfter); !moved || l.Elapsed()-begun > longest || l.trace.steps-first >= mostSteps {
			return fmt.Errorf("after %d steps and %v without a fault: %w", l.trace.steps-first, l.Elapsed()-begun, err)
		}
	}
}

// settle waits until every goroutine waits, and checks the invariants.
func (l *Lab) settle(plan Plan) error {
	synctest.Wait()
	l.source.turns.Add(1)
	if plan.Check == nil {
		return nil
	}
	return plan.Check()
}

// takeOne takes one of the steps.
func (l *Lab) takeOne(ready []*parked, plan Plan) {
	chosen := ready[l.Choose(len(ready))]
	fault := ""
	if faults := chosen.step.Faults; len(faults) > 0 && !l.calm && l.OneIn(or(plan.FaultEvery, defaultFaultEvery)) {
		fault = faults[l.Choose(len(faults))]
	}
	l.take(chosen, fault)
}

// act does one of the actions.
func (l *Lab) act(plan Plan) {
	if plan.Actions == nil {
		return
	}
	actions, all := plan.Actions(), 0
	for _, a := range actions {
		all += max(a.Weight, 1)
	}
	number := l.Choose(all)
	for _, a := range actions {
		if number -= max(a.Weight, 1); number < 0 {
			l.trace.step(l.Elapsed(), "* "+a.Name)
			a.Do()
			return
		}
	}
}

// advance lets time pass until another step waits, for at most d. It reports whether one
// does.
func (l *Lab) advance(d time.Duration) bool {
	select {
	case <-l.wake: // of a step that waited before
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.wake:
		return true
	case <-timer.C:
		return false
	}
}

func or[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}
