package attachment

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// run is the work of one flight.
type run struct {
	m     *Machine
	f     *flight
	pair  pair
	wish  wish
	began time.Time

	last    *cloud.Attachment // the pair's attachment as it was last seen
	tried   int               // device names
	puzzled int               // refusals that no description explained
	checked time.Time         // when a stuck detachment was last looked into
}

// say notes what is being waited for.
func (r *run) say(format string, arguments ...any) {
	phase := fmt.Sprintf(format, arguments...)
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.f.phase = phase
}

// own judges the pair by a description.
func (r *run) own(v cloud.Volume) (standing, *cloud.Attachment) {
	a := find(v, r.pair.instance)
	s := r.m.recall(r.pair).standing(a, time.Now(), r.m.options)
	if s == absent {
		a = nil
	}
	return s, a
}

// wait looks at the volume until ready is content with how the pair stands. A
// volume that EC2 does not show any more is looked at by itself, which tells
// for certain (ErrNotFound).
func (r *run) wait(ctx context.Context, e cloud.Expect, ready func(v cloud.Volume, s standing, a *cloud.Attachment) bool) (cloud.Volume, error) {
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

// awaitAttached waits for an attachment under way: until it is attached, stuck,
// or something else.
func (r *run) awaitAttached(ctx context.Context) (cloud.Volume, error) {
	since := r.since(r.last)
	r.say("volume %s has been attaching to instance %s%s since %s", r.pair.volume, r.pair.instance, r.asDevice(), stamp(since))
	return r.wait(ctx, cloud.Expect{Kind: "attach", Since: since}, func(_ cloud.Volume, s standing, a *cloud.Attachment) bool {
		return s != coming || r.stuck(a)
	})
}

// since is when an attachment began.
func (r *run) since(a *cloud.Attachment) time.Time {
	k := r.m.recall(r.pair)
	switch {
	case !k.asked.IsZero() && (a == nil || a.Device == k.device):
		return k.asked
	case a != nil && !a.Since.IsZero():
		return a.Since
	}
	return r.began
}

// stuck reports whether an attachment takes too long. One that this call found is
// first watched for a while, as EC2's clock may not be ours.
func (r *run) stuck(a *cloud.Attachment) bool {
	now := time.Now()
	return a != nil && a.State == cloud.Attaching &&
		now.Sub(r.since(a)) >= r.m.options.Stuck && now.Sub(r.began) >= min(r.m.options.Lag, r.m.options.Stuck)
}

// awaitGone waits for a detachment under way: until it is over, has taken too
// long since it was last looked into, or is something else.
func (r *run) awaitGone(ctx context.Context) (cloud.Volume, error) {
	since := r.leftSince()
	r.say("volume %s has been detaching from instance %s since %s; if that does not end, see on the instance whether the volume is still mounted or open",
		r.pair.volume, r.pair.instance, stamp(since))
	return r.wait(ctx, cloud.Expect{Kind: "detach", Since: since}, func(_ cloud.Volume, s standing, a *cloud.Attachment) bool {
		if s == going && a != nil {
			r.m.pending.note(r.pair, a.State)
		}
		return s != going || r.overdue()
	})
}

// leftSince is when the detachment was asked for, or first seen.
func (r *run) leftSince() time.Time {
	if k := r.m.recall(r.pair); !k.left.IsZero() {
		return k.left
	}
	return r.began
}

// overdue tells that a detachment takes so long that it should be looked into.
func (r *run) overdue() bool {
	from := r.leftSince()
	if r.checked.After(from) {
		from = r.checked
	}
	return time.Since(from) >= r.m.options.Stuck
}

// lookAt looks at a time, and at once if that has come.
func (r *run) lookAt(ctx context.Context, at time.Time) (cloud.Volume, error) {
	return r.wait(ctx, cloud.Expect{Since: at}, func(cloud.Volume, standing, *cloud.Attachment) bool {
		return !time.Now().Before(at)
	})
}

// lookUntil looks again and again until a time, or until done.
func (r *run) lookUntil(ctx context.Context, until time.Time, done func(cloud.Volume, standing) bool) (cloud.Volume, error) {
	return r.wait(ctx, cloud.Expect{}, func(v cloud.Volume, s standing, _ *cloud.Attachment) bool {
		return !time.Now().Before(until) || done(v, s)
	})
}

// see notes the pair's attachment, and when a detachment that nobody here asked
// for was first seen.
func (r *run) see(s standing, a *cloud.Attachment) {
	if a == nil {
		return
	}
	r.last = a
	if s == attached && r.wish.attach {
		r.m.pending.over(r.pair)
	}
	if s != going {
		return
	}
	r.m.pending.note(r.pair, a.State)
	r.m.remember(r.pair, func(k *memory) {
		if k.left.IsZero() || k.leaving != incarnationOf(*a) {
			k.left, k.leaving = time.Now(), incarnationOf(*a)
		}
		k.seen = time.Now()
	})
}

// gone notes that the pair's attachment is over, which frees its name. Nothing
// but a description can tell that: a wait that failed does not.
func (r *run) gone() {
	now := time.Now()
	var device string
	r.m.remember(r.pair, func(k *memory) {
		device = k.device
		if r.last != nil {
			k.over, k.overAt = incarnationOf(*r.last), now
			device = r.last.Device
		}
		k.asked, k.device, k.accepted = time.Time{}, "", false
	})
	if r.last != nil || device != "" {
		r.m.names.free(r.pair.instance, r.pair.volume, device)
	}
	r.last = nil
	r.m.pending.over(r.pair)
}

// asDevice names the device that is being attached, as far as is known.
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

// stamp gives a time as messages have it.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
