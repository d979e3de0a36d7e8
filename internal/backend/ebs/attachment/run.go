package attachment

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// run is the work of one operation.
type run struct {
	m       *Machine
	op      *operation
	pair    pair
	desired desired
	began   time.Time

	last        *cloud.Attachment // the last description of the pair's attachment
	tried       int               // device names
	unexplained int               // refusals that no description explained
	checked     time.Time         // when a stuck detachment was last checked
}

// setPhase sets the current step of the operation, for error messages.
func (r *run) setPhase(format string, arguments ...any) {
	phase := fmt.Sprintf(format, arguments...)
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.op.phase = phase
}

// own returns the state of the pair by a description, and its attachment.
func (r *run) own(v cloud.Volume) (state, *cloud.Attachment) {
	a := find(v, r.pair.instance)
	s := r.m.recall(r.pair).state(a, time.Now(), r.m.options)
	if s == absent {
		a = nil
	}
	return s, a
}

// wait polls the volume until ready accepts the state of the pair. A volume that a poll
// does not show is described by its ID, which is certain (ErrNotFound).
func (r *run) wait(
	ctx context.Context, e cloud.Expect, ready func(v cloud.Volume, s state, a *cloud.Attachment) bool,
) (cloud.Volume, error) {
	v, err := r.m.cloud.WaitVolume(ctx, r.pair.volume, e, func(v cloud.Volume, found bool) (bool, error) {
		if !found {
			return true, nil
		}
		s, a := r.own(v)
		return ready(v, s, a), nil
	})
	if err == nil && v.ID == "" {
		return r.m.cloud.Volume(ctx, r.pair.volume)
	}
	return v, err
}

// awaitAttached waits until an attachment under way is attached or stuck, or has another
// state.
func (r *run) awaitAttached(ctx context.Context) (cloud.Volume, error) {
	since := r.since(r.last)
	r.setPhase("volume %s has been attaching to instance %s%s since %s",
		r.pair.volume, r.pair.instance, r.asDevice(), stamp(since))
	return r.wait(ctx, cloud.Expect{Kind: "attach", Since: since},
		func(_ cloud.Volume, s state, a *cloud.Attachment) bool {
			return s != attaching || r.stuck(a)
		})
}

// since is when an attachment began.
func (r *run) since(a *cloud.Attachment) time.Time {
	k := r.m.recall(r.pair)
	switch {
	case !k.attachSent.IsZero() && (a == nil || a.Device == k.device):
		return k.attachSent
	case a != nil && !a.Since.IsZero():
		return a.Since
	}
	return r.began
}

// stuck reports whether an attachment takes too long. The call first observes an
// attachment that it found under way for a while, because EC2's clock may differ.
func (r *run) stuck(a *cloud.Attachment) bool {
	now := time.Now()
	return a != nil && a.State == cloud.Attaching &&
		now.Sub(r.since(a)) >= r.m.options.Stuck && now.Sub(r.began) >= min(r.m.options.Lag, r.m.options.Stuck)
}

// awaitDetached waits until a detachment under way has ended or must be checked (see
// overdue), or has another state.
func (r *run) awaitDetached(ctx context.Context) (cloud.Volume, error) {
	since := r.detachingSince()
	r.setPhase("volume %s has been detaching from instance %s since %s; if that does not end, "+
		"check on the instance whether the volume is still mounted or open", r.pair.volume, r.pair.instance, stamp(since))
	return r.wait(ctx, cloud.Expect{Kind: "detach", Since: since},
		func(_ cloud.Volume, s state, a *cloud.Attachment) bool {
			if s == detaching && a != nil {
				r.m.pending.note(r.pair, a.State)
			}
			return s != detaching || r.overdue()
		})
}

// detachingSince is when the detachment was requested, or first observed.
func (r *run) detachingSince() time.Time {
	if k := r.m.recall(r.pair); !k.detachSent.IsZero() {
		return k.detachSent
	}
	return r.began
}

// overdue reports whether a detachment has taken too long since its start or its last
// check, so that its instance must be checked.
func (r *run) overdue() bool {
	from := r.detachingSince()
	if r.checked.After(from) {
		from = r.checked
	}
	return time.Since(from) >= r.m.options.Stuck
}

// pollAt polls at a time, or at once if that has passed.
func (r *run) pollAt(ctx context.Context, at time.Time) (cloud.Volume, error) {
	return r.wait(ctx, cloud.Expect{Since: at}, func(cloud.Volume, state, *cloud.Attachment) bool {
		return !time.Now().Before(at)
	})
}

// pollUntil polls until a time, or until done reports true.
func (r *run) pollUntil(
	ctx context.Context, until time.Time, done func(cloud.Volume, state) bool,
) (cloud.Volume, error) {
	return r.wait(ctx, cloud.Expect{}, func(v cloud.Volume, s state, _ *cloud.Attachment) bool {
		return !time.Now().Before(until) || done(v, s)
	})
}

// observe records the pair's attachment, and when a detachment that another process
// requested was first observed.
func (r *run) observe(s state, a *cloud.Attachment) {
	if a == nil {
		return
	}
	r.last = a
	if s == attached && r.desired.attach {
		r.m.pending.done(r.pair)
	}
	if s != detaching {
		return
	}
	r.m.pending.note(r.pair, a.State)
	r.m.remember(r.pair, func(k *memory) {
		if k.detachSent.IsZero() || k.detachOf != incarnationOf(*a) {
			k.detachSent, k.detachOf = time.Now(), incarnationOf(*a)
		}
	})
}

// gone records that the pair's attachment has ended, which frees its name. Only a
// description shows that; a wait that failed does not.
func (r *run) gone() {
	now := time.Now()
	var device string
	r.m.remember(r.pair, func(k *memory) {
		device = k.device
		if r.last != nil {
			k.gone, k.goneAt = incarnationOf(*r.last), now
			device = r.last.Device
		}
		k.attachSent, k.device, k.accepted = time.Time{}, "", false
	})
	if r.last != nil || device != "" {
		r.m.names.free(r.pair.instance, r.pair.volume, device)
	}
	r.last = nil
	r.m.pending.done(r.pair)
}

// asDevice names the device that is being attached, if it is known.
func (r *run) asDevice() string {
	if r.last == nil {
		return as(&cloud.Attachment{Device: r.m.recall(r.pair).device})
	}
	return as(r.last)
}

// as names the device of an attachment, if it is known.
func as(a *cloud.Attachment) string {
	if a == nil || a.Device == "" {
		return ""
	}
	return " as " + a.Device
}

// stamp formats a time for messages.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
