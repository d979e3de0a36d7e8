package attachment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Detach detaches a volume from an instance, or from all if instanceID is "". It succeeds
// when EC2 shows no attachment, also for a volume or an instance that does not exist.
//
// Errors: ErrBusy (superseded by Attach, or not done in the caller's time).
func (m *Machine) Detach(ctx context.Context, volumeID, instanceID string) error {
	if instanceID != "" {
		_, err := m.do(ctx, pair{volumeID, instanceID}, desired{})
		return err
	}
	return m.detachAll(ctx, volumeID)
}

// detachAll detaches a volume from every instance that EC2 shows, or to which this
// process attached it recently, until none remains.
func (m *Machine) detachAll(ctx context.Context, volumeID string) error {
	m.begin()
	done := map[string]bool{}
	for {
		polled := time.Now()
		volume, err := m.cloud.Volume(ctx, volumeID)
		if errors.Is(err, backend.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		remaining := m.known(volumeID)
		maps.DeleteFunc(remaining, func(instance string, _ bool) bool { return done[instance] })
		for _, a := range volume.Attachments {
			if k := m.recall(pair{volumeID, a.InstanceID}); k.state(&a, time.Now(), m.options) != absent {
				remaining[a.InstanceID] = true
			}
		}
		if len(remaining) == 0 {
			if !polled.Before(m.staleStart()) {
				return nil
			}
			if err := concurrency.Sleep(ctx, time.Until(m.staleStart())); err != nil {
				return err
			}
			continue
		}
		if err := m.detachEach(ctx, volumeID, slices.Sorted(maps.Keys(remaining))); err != nil {
			return err
		}
		maps.Copy(done, remaining)
	}
}

func (m *Machine) detachEach(ctx context.Context, volumeID string, instances []string) error {
	failed := make([]error, len(instances))
	var all sync.WaitGroup
	for i, instance := range instances {
		all.Go(func() { _, failed[i] = m.do(ctx, pair{volumeID, instance}, desired{}) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// detach works until EC2 shows that the pair is not attached.
func (r *run) detach(ctx context.Context) error {
	volume, err := r.m.cloud.Volume(ctx, r.pair.volume)
	for err == nil {
		s, a := r.own(volume)
		r.observe(s, a)
		switch {
		case s == absent:
			until := r.staleUntil()
			if !time.Now().Before(until) {
				r.gone()
				return nil
			}
			r.setPhase("volume %s shows no attachment to instance %s; this description may be older than the last call",
				r.pair.volume, r.pair.instance)
			volume, err = r.pollAt(ctx, until)
		case s == attaching && !r.stuck(a):
			volume, err = r.awaitAttached(ctx)
		case s == detaching && r.overdue():
			err = r.force(ctx, a)
		case s == detaching:
			volume, err = r.awaitDetached(ctx)
		case a == nil: // expected, but not shown yet
			volume, err = r.awaitAttached(ctx)
		default:
			if err = r.askDetach(ctx, *a, false); err == nil {
				volume, err = r.awaitDetached(ctx)
			}
		}
	}
	if errors.Is(err, backend.ErrNotFound) {
		r.gone() // a deleted volume is not attached
		return nil
	}
	return err
}

// staleUntil is until when a description without the attachment may be out of date.
func (r *run) staleUntil() time.Time {
	until := r.m.recall(r.pair).staleUntil(r.m.options)
	if staleStart := r.m.staleStart(); staleStart.After(until) {
		until = staleStart
	}
	return until
}

// askDetach calls DetachVolume. A refusal does not show the state: the volume may be
// detached already, or detaching, or the instance may be terminated. Only a description
// that is newer than this call shows it.
func (r *run) askDetach(ctx context.Context, a cloud.Attachment, force bool) error {
	r.setPhase("DetachVolume of volume %s from instance %s was sent to EC2", r.pair.volume, r.pair.instance)
	err := r.m.cloud.DetachVolume(ctx, r.pair.volume, r.pair.instance, force)
	if err == nil || cloud.Uncertain(err) || mayBeDetached(err) {
		r.m.remember(r.pair, func(k *memory) { k.detachSent, k.detachOf = time.Now(), incarnationOf(a) })
		r.m.pending.note(r.pair, cloud.Detaching)
	}
	switch {
	case err == nil, mayBeDetached(err):
		return nil
	case ctx.Err() != nil || isContext(err):
		return err
	case cloud.Uncertain(err):
		return nil
	}
	return fmt.Errorf("detach volume %s from instance %s: %w", r.pair.volume, r.pair.instance, err)
}

// mayBeDetached reports whether EC2 refused with a code that it also uses for a volume
// that is not attached.
func mayBeDetached(err error) bool {
	switch cloud.Code(err) {
	case "IncorrectState", "IncorrectInstanceState", "InvalidAttachment.NotFound",
		"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed":
		return true
	}
	return false
}

// force checks the instance of a detachment that takes too long. It forces the
// detachment only if the instance does not run, because a forced detachment loses data
// that the guest has not written (EC2 API, DetachVolume, Force). Otherwise the wait
// continues.
func (r *run) force(ctx context.Context, a *cloud.Attachment) error {
	r.checked = time.Now()
	instance, err := r.m.cloud.Instance(ctx, r.pair.instance)
	switch {
	case errors.Is(err, backend.ErrNotFound):
	case err != nil:
		return err
	case instance.State != cloud.InstanceStopped && instance.State != cloud.InstanceTerminated:
		r.m.log.Warn("detachment takes long; check on the instance whether the volume is still mounted or open",
			"volume", r.pair.volume, "node", r.pair.instance, "since", r.detachingSince())
		return nil
	}
	if a == nil {
		return nil
	}
	r.m.log.Warn("detachment is stuck at an instance that does not run; forcing it",
		"volume", r.pair.volume, "node", r.pair.instance)
	since := r.detachingSince()
	r.m.names.refuse(r.pair.instance, a.Device)
	if err := r.askDetach(ctx, *a, true); err != nil {
		return err
	}
	r.m.remember(r.pair, func(k *memory) { k.detachSent = since })
	return nil
}
