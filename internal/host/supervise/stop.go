package supervise

import (
	"context"
	"time"
)

// stopAll stops every process of the unit.
func (r *runner) stopAll(ctx context.Context) {
	for len(r.instances) > 0 && ctx.Err() == nil {
		r.stop(ctx, r.instances[0])
	}
}

// stop ends a process: SIGTERM, and SIGKILL after the grace. It returns when the
// process has ended, or the context.
func (r *runner) stop(ctx context.Context, one *instance) {
	r.say(StateStopping, nil)
	one.stopped = true
	r.signal(one, false)
	kill := time.After(r.grace())
	for {
		select {
		case <-ctx.Done():
			return
		case <-kill:
			r.supervisor.options.Logger.Warn("a driver does not end and is killed", "unit", r.name, "pid", one.PID)
			r.signal(one, true)
		case other := <-r.ended:
			r.removeEnded(other)
			if other == one {
				return
			}
		}
	}
}

// stopAfterEnd stops the processes when the supervision has ended.
func (r *runner) stopAfterEnd() {
	for _, one := range r.instances {
		r.signal(one, false)
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.grace())
	defer cancel()
	for _, one := range r.instances {
		if one.process.exited(ctx) != nil {
			r.signal(one, true)
		}
	}
}

func (r *runner) signal(one *instance, kill bool) {
	if err := one.process.signal(kill); err != nil {
		r.supervisor.options.Logger.Error("a driver cannot be signalled to end", "unit", r.name,
			"pid", one.PID, "error", err)
	}
}

func (r *runner) grace() time.Duration {
	if r.record.Unit == nil {
		return 0
	}
	return r.record.Unit.StopGrace.Duration
}
