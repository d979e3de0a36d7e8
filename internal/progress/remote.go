package progress

import (
	"context"
	"time"
)

// remoteLifetime is how long the work of another system is listed after it was last seen.
// Orchestrators repeat the call that shows it at least once a minute.
const remoteLifetime = 5 * time.Minute

// remote is work that another system does.
type remote struct {
	Operation
	seen time.Time
}

// Note reports how far another system is with work that goes on after the call that
// started it, such as the upload of a snapshot. id identifies the work. It is listed with
// the call and the object of the last Note, until Forget or until it was not seen for 5
// minutes. Without a Tracker in the context, Note does nothing.
func Note(ctx context.Context, id, doing string, percent int64) {
	of, tracked := ctx.Value(key{}).(call)
	if !tracked {
		return
	}
	of.tracker.note(of, id, doing, percent, time.Now())
}

// Forget reports that the work of another system has ended, or that nothing is known of it.
func Forget(ctx context.Context, id string) {
	if of, tracked := ctx.Value(key{}).(call); tracked {
		of.tracker.mu.Lock()
		defer of.tracker.mu.Unlock()
		delete(of.tracker.remote, id)
	}
}

func (t *Tracker) note(of call, id, doing string, percent int64, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetOld(now)
	started := now
	if known, ok := t.remote[id]; ok && known.Doing == doing {
		started = known.Started
	}
	if t.remote == nil {
		t.remote = map[string]remote{}
	}
	t.remote[id] = remote{seen: now, Operation: Operation{
		Call: of.name, Object: of.object, Doing: doing, Started: started,
		Done: min(max(percent, 0), wholePercent), Total: wholePercent, Unit: Percent,
	}}
}

// forgetOld removes the work that no call has shown for long; t.mu is held.
func (t *Tracker) forgetOld(now time.Time) {
	for id, one := range t.remote {
		if now.Sub(one.seen) >= remoteLifetime {
			delete(t.remote, id)
		}
	}
}
