package attachment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// Attach attaches a volume to an instance and returns the device name of the
// attachment.
//
// Errors: ErrNotFound (volume or instance), ErrInUse (another instance has it),
// ErrPrecondition (zone, or state of volume or instance), ErrNoSpace (the
// instance takes no more volumes), ErrBusy (superseded by Detach, or not done in
// the caller's time).
func (m *Machine) Attach(ctx context.Context, volumeID, instanceID string, use Use) (device string, err error) {
	return m.do(ctx, pair{volumeID, instanceID}, desired{attach: true, use: use})
}

// attach works until the pair is attached.
func (r *run) attach(ctx context.Context) (string, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	instance := r.instance(ctx)
	volume, err := r.m.cloud.Volume(ctx, r.pair.volume)
	for err == nil {
		s, a := r.own(volume)
		r.observe(s, a)
		switch {
		case s == attached:
			return r.accept(ctx, volume, *a)
		case s == attaching && r.stuck(a):
			err = r.unstick(ctx, *a)
		case s == attaching:
			volume, err = r.awaitAttached(ctx)
		case s == detaching:
			volume, err = r.awaitDetached(ctx)
			r.checked = time.Now()
		default:
			if r.last != nil {
				r.gone()
			}
			volume, err = r.start(ctx, volume, instance)
		}
	}
	return "", err
}

// instance describes the instance in the background, unless its last description is
// recent. The returned function waits for the result.
func (r *run) instance(ctx context.Context) func() (cloud.Instance, error) {
	instance, known := r.m.names.described.Get(r.pair.instance)
	if known {
		return func() (cloud.Instance, error) { return instance, nil }
	}
	var err error
	done := make(chan struct{})
	r.m.running.Go(func() {
		defer close(done)
		instance, err = r.m.cloud.Instance(ctx, r.pair.instance)
		if err == nil && instance.State == cloud.InstanceRunning {
			r.m.names.described.Set(r.pair.instance, instance, r.m.options.Described)
		}
	})
	return func() (cloud.Instance, error) {
		<-done
		return instance, err
	}
}

// accept returns the name of an attachment that is complete.
func (r *run) accept(ctx context.Context, volume cloud.Volume, a cloud.Attachment) (string, error) {
	if other := r.other(volume); other != nil && !r.desired.use.Shared {
		return "", r.refuseShared(ctx, a, *other)
	}
	k := r.m.recall(r.pair)
	if a.Device != "" && (k.attachSent.IsZero() || a.Device == k.device) {
		return a.Device, nil
	}
	return r.realName(ctx, a)
}

// realName describes the instance for the device name of an attachment that has another
// name than the requested one.
func (r *run) realName(ctx context.Context, a cloud.Attachment) (string, error) {
	instance, err := r.m.cloud.Instance(ctx, r.pair.instance)
	if err != nil {
		return "", err
	}
	for _, d := range instance.Devices {
		if d.VolumeID == r.pair.volume && d.Name != "" {
			return d.Name, nil
		}
	}
	if a.Device == "" {
		return "", fmt.Errorf("%w: volume %s is attached to instance %s, but EC2 does not show its device name yet",
			backend.ErrBusy, r.pair.volume, r.pair.instance)
	}
	return a.Device, nil
}

// other is an attachment to another instance that is not known to have ended.
func (r *run) other(v cloud.Volume) *cloud.Attachment {
	for i, a := range v.Attachments {
		if a.InstanceID == r.pair.instance {
			continue
		}
		k := r.m.recall(pair{v.ID, a.InstanceID})
		if k.state(&a, time.Now(), r.m.options) != absent {
			return &v.Attachments[i]
		}
	}
	return nil
}

// refuseShared rejects a volume that another instance has too, although the caller
// requests it for one instance. If this call attached it, it detaches it again. So of two
// calls that attached concurrently both detach, and neither instance writes.
func (r *run) refuseShared(ctx context.Context, own, other cloud.Attachment) error {
	if r.tried > 0 {
		if err := r.askDetach(ctx, own, false); err != nil {
			return err
		}
	}
	return r.elsewhere(other)
}

func (r *run) elsewhere(a cloud.Attachment) error {
	return fmt.Errorf("%w: volume %s is %s at instance %s%s since %s; detach it there first",
		backend.ErrInUse, r.pair.volume, a.State, a.InstanceID, as(&a), stamp(a.Since))
}

// start requests the attachment if volume and instance allow it, and returns a newer
// description of the volume.
func (r *run) start(
	ctx context.Context, volume cloud.Volume, instance func() (cloud.Instance, error),
) (cloud.Volume, error) {
	if other := r.other(volume); other != nil && (!r.desired.use.Shared || !volume.MultiAttach) {
		return r.awaitOther(ctx, volume, *other)
	}
	if err := checkVolume(volume); err != nil {
		return volume, err
	}
	if volume.State == cloud.VolumeCreating {
		r.setPhase("volume %s is being created", volume.ID)
		return r.wait(ctx, cloud.Expect{Kind: "create", Since: volume.Created},
			func(v cloud.Volume, _ state, _ *cloud.Attachment) bool {
				return v.State != cloud.VolumeCreating
			})
	}
	at, err := instance()
	if err != nil {
		return volume, err
	}
	if err := checkInstance(volume, at); err != nil {
		return volume, err
	}
	if before := r.m.options.Before; before != nil {
		if err := before(ctx, volume, r.desired.use, func(phase string) { r.setPhase("%s", phase) }); err != nil {
			return volume, err
		}
	}
	if err := r.m.claim(r.pair, r.desired); err != nil {
		return volume, err
	}
	defer r.m.release(r.pair)
	return r.ask(ctx, volume, at)
}

// awaitOther waits while the volume is detached from another instance, and refuses
// the volume if that does not end.
func (r *run) awaitOther(ctx context.Context, volume cloud.Volume, other cloud.Attachment) (cloud.Volume, error) {
	their := pair{volume.ID, other.InstanceID}
	isDetaching := func(a *cloud.Attachment) bool {
		return a != nil && r.m.recall(their).state(a, time.Now(), r.m.options) == detaching
	}
	if !isDetaching(&other) || time.Since(r.began) >= r.m.options.Stuck {
		return volume, r.elsewhere(other)
	}
	r.setPhase("volume %s is being detached from instance %s", volume.ID, other.InstanceID)
	return r.wait(ctx, cloud.Expect{Kind: "detach"}, func(v cloud.Volume, _ state, _ *cloud.Attachment) bool {
		return !isDetaching(find(v, other.InstanceID)) || time.Since(r.began) >= r.m.options.Stuck
	})
}

func checkVolume(v cloud.Volume) error {
	switch v.State {
	case cloud.VolumeDeleting, cloud.VolumeDeleted:
		return fmt.Errorf("%w: volume %s is being deleted", backend.ErrNotFound, v.ID)
	case cloud.VolumeError:
		return fmt.Errorf("%w: volume %s is in state error: EC2 could not create it; check that its KMS key can be used",
			backend.ErrPrecondition, v.ID)
	}
	return nil
}

// checkInstance rejects an attachment that EC2 would refuse with a less precise error.
func checkInstance(v cloud.Volume, i cloud.Instance) error {
	switch i.State {
	case cloud.InstanceStopping, cloud.InstanceStopped, cloud.InstanceShutting, cloud.InstanceTerminated:
		return fmt.Errorf("%w: instance %s is %s; a volume can be attached to a running one",
			backend.ErrPrecondition, i.ID, i.State)
	}
	if v.Zone != "" && i.Zone != "" && v.Zone != i.Zone {
		return fmt.Errorf("%w: volume %s is in zone %s and instance %s in zone %s; a volume can only be attached in its own zone",
			backend.ErrPrecondition, v.ID, v.Zone, i.ID, i.Zone)
	}
	return nil
}

// ask tries device names until EC2 accepts one, and returns a newer description that
// shows the outcome.
func (r *run) ask(ctx context.Context, volume cloud.Volume, instance cloud.Instance) (cloud.Volume, error) {
	cards := r.m.cards(ctx, instance)
	for {
		name, card, err := r.reserve(ctx, instance, cards)
		if err != nil {
			return volume, err
		}
		r.tried++
		r.setPhase("AttachVolume of volume %s to instance %s as %s was sent to EC2",
			r.pair.volume, r.pair.instance, name)
		err = r.send(ctx, name, card)
		if err != nil {
			r.m.names.described.Delete(r.pair.instance) // it may be out of date
		}
		if !refusesName(err, name) {
			return r.after(ctx, volume, err)
		}
		if r.tried >= r.m.options.Names {
			return volume, fmt.Errorf("EC2 refused %d device names, the last was %s: %w", r.tried, name, unmarked(err))
		}
	}
}

// reserve reserves a device name. If none is free by the last description of the
// instance, it describes the instance again.
func (r *run) reserve(ctx context.Context, instance cloud.Instance, cards int) (string, *int32, error) {
	name, card, err := r.m.names.reserve(instance, r.pair.volume, cards)
	if !errors.Is(err, backend.ErrNoSpace) {
		return name, card, err
	}
	if instance, err = r.m.cloud.Instance(ctx, r.pair.instance); err != nil {
		return "", nil, err
	}
	return r.m.names.reserve(instance, r.pair.volume, cards)
}

// send calls AttachVolume and records the outcome for the pair and the name.
func (r *run) send(ctx context.Context, name string, card *int32) error {
	in := cloud.AttachInput{VolumeID: r.pair.volume, InstanceID: r.pair.instance, Device: name, Card: card}
	a, err := r.m.cloud.AttachVolume(ctx, in)
	switch {
	case err == nil:
		if a.Device != "" && a.Device != name {
			r.m.log.Warn("EC2 attached under another device name than the requested one",
				"volume", r.pair.volume, "node", r.pair.instance, "requested", name, "device", a.Device)
		}
		r.m.names.extend(r.pair.instance, name)
		r.m.remember(r.pair, func(k *memory) { k.attachSent, k.device, k.accepted = time.Now(), name, true })
	case refusesName(err, name):
		r.m.names.refuse(r.pair.instance, name)
	case cloud.Uncertain(err):
		r.m.names.extend(r.pair.instance, name)
		// If the caller has left, EC2 may still receive the request.
		r.m.remember(r.pair, func(k *memory) { k.attachSent, k.device, k.accepted = time.Now(), name, false })
	default:
		r.m.names.release(r.pair.instance, name)
	}
	return err
}

// after handles the answer of AttachVolume and returns a newer description.
func (r *run) after(ctx context.Context, volume cloud.Volume, err error) (cloud.Volume, error) {
	switch {
	case err == nil:
		return r.awaitAttached(ctx)
	case ctx.Err() != nil || isContext(err):
		return volume, err
	}
	code := cloud.Code(err)
	if !cloud.Uncertain(err) && code != "VolumeInUse" && code != "IncorrectState" {
		return volume, fmt.Errorf("attach volume %s to instance %s: %w", r.pair.volume, r.pair.instance, err)
	}
	// The volume is attached already, to this or another instance, or the answer was lost.
	if r.unexplained++; r.unexplained > 3 {
		return volume, fmt.Errorf("attach volume %s to instance %s: %w", r.pair.volume, r.pair.instance, err)
	}
	if code == "IncorrectState" {
		if err := r.recheckInstance(ctx, volume); err != nil {
			return volume, err
		}
	}
	return r.pollUntil(ctx, time.Now().Add(r.m.options.Stale), func(v cloud.Volume, _ state) bool {
		return len(v.Attachments) > 0
	})
}

func (r *run) recheckInstance(ctx context.Context, volume cloud.Volume) error {
	instance, err := r.m.cloud.Instance(ctx, r.pair.instance)
	if err != nil {
		return err
	}
	return checkInstance(volume, instance)
}

// unstick detaches an attachment that makes no progress, so that the next round tries
// another name. If the deadlines of the callers are too near, it returns an error.
func (r *run) unstick(ctx context.Context, a cloud.Attachment) error {
	since := r.since(&a)
	message := fmt.Sprintf("volume %s has been attaching to instance %s%s since %s and is stuck",
		r.pair.volume, r.pair.instance, as(&a), stamp(since))
	if r.tried >= r.m.options.Names || !r.timeFor(2*r.m.options.Lag) {
		return fmt.Errorf("%w: %s; repeat the call, which detaches the volume and tries another device name",
			backend.ErrBusy, message)
	}
	r.m.log.Warn("attachment is stuck; trying another device name",
		"volume", r.pair.volume, "node", r.pair.instance, "device", a.Device, "since", since)
	r.m.names.refuse(r.pair.instance, a.Device)
	r.tried++
	return r.askDetach(ctx, a, false)
}

// timeFor reports whether a caller still waits that long.
func (r *run) timeFor(d time.Duration) bool {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	return r.op.deadline.IsZero() || time.Until(r.op.deadline) > d
}

// refusesName reports whether EC2 refused the device name. EC2 has no single code for
// that, but its messages contain the name.
func refusesName(err error, name string) bool {
	var e *cloud.Error
	if !errors.As(err, &e) || e.Uncertain {
		return false
	}
	return cloud.DeviceNameTaken(err) || e.Code == "InvalidParameterValue" && strings.Contains(e.Message, name)
}

// unmarked removes the sentinel from an error, because the driver and not the caller
// chose the parameter that EC2 calls invalid.
func unmarked(err error) error { return errors.New(err.Error()) }
