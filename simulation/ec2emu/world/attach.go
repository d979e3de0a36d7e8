package world

import (
	"maps"
	"slices"
	"time"
)

const maxShares = 16 // instances of a multi-attach volume

// AttachVolume begins an attachment: the volume is in-use at once, the
// attachment attaching, then attached.
func (w *World) AttachVolume(r *AttachVolumeRequest) (_ *AttachVolumeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, i, refusal := w.attachSubjects(r)
	if refusal != nil {
		return nil, refusal
	}
	hangs, refusal := w.mayAttach(v, i, r)
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	a := w.beginAttach(v, i, r, hangs)
	view := w.attachmentView(v, a)
	view.Device = r.Device
	return &AttachVolumeResponse{view}, nil
}

func (w *World) attachSubjects(r *AttachVolumeRequest) (*volume, *instance, *Error) {
	if r.Device == "" {
		return nil, nil, missing("device")
	}
	v, refusal := w.findVolume(r.VolumeID)
	if refusal != nil {
		return nil, nil, refusal
	}
	i, refusal := w.findInstance(r.InstanceID)
	return v, i, refusal
}

// mayAttach returns the first reason to refuse an attachment. hangs reports that it is
// accepted and stays attaching.
func (w *World) mayAttach(v *volume, i *instance, r *AttachVolumeRequest) (hangs bool, _ *Error) {
	switch {
	case v.Operator != "":
		return false, managed(v)
	case v.Zone != i.Zone:
		return false, refuse("InvalidVolume.ZoneMismatch",
			"The volume '%s' is not in the same availability zone as instance '%s'", v.ID, i.ID)
	case v.Outpost != i.Outpost:
		return false, refuse("InvalidVolume.ZoneMismatch",
			"The volume '%s' is not on the same Outpost as instance '%s'", v.ID, i.ID)
	}
	if refusal := instanceTakes(i); refusal != nil {
		return false, refusal
	}
	if refusal := w.volumeIsFree(v, i); refusal != nil {
		return false, refusal
	}
	if refusal := w.checkName(i, r.Device); refusal != nil {
		return false, refusal
	}
	cards := w.typeOf(i).cards()
	if r.EBSCardIndex != nil && (*r.EBSCardIndex < 0 || *r.EBSCardIndex >= cards) {
		return false, invalid("Value ( %d ) for parameter ebsCardIndex is invalid. The instance type %s has %d EBS cards.", *r.EBSCardIndex, i.Type, cards)
	}
	if used, limit := w.slots(i); used >= limit {
		if w.knobs.Attach.OverLimitHangs {
			return true, nil
		}
		return false, refuse("AttachmentLimitExceeded",
			"The instance '%s' of type %s has %d attachments; its limit is %d.", i.ID, i.Type, used, limit)
	}
	return false, nil
}

func instanceTakes(i *instance) *Error {
	switch i.State {
	case running, stopped:
		return nil
	case pending:
		return incorrectState("Instance '%s' is not 'running'.", i.ID)
	}
	return refuse("IncorrectInstanceState",
		"The instance '%s' is in the state '%s', in which no volume can be attached.", i.ID, i.State)
}

// volumeIsFree: available, or a multi-attach volume with room for one more.
func (w *World) volumeIsFree(v *volume, i *instance) *Error {
	switch {
	case v.State == available:
	case v.State != inUse:
		return incorrectState("Volume '%s' is in the '%s' state and not 'available'.", v.ID, v.State)
	case v.at(i.ID) != nil:
		return refuse("VolumeInUse", "%s is already attached to instance %s", v.ID, i.ID)
	case !v.Multi:
		return refuse("VolumeInUse", "%s is already attached to an instance", v.ID)
	case len(v.Attachments) >= maxShares:
		return refuse("AttachmentLimitExceeded", "The volume '%s' is attached to %d instances, which is the most.",
			v.ID, maxShares)
	}
	if v.Multi {
		return w.mayShare(v, i)
	}
	return nil
}

// mayShare checks the rules of multi-attach volumes.
func (w *World) mayShare(v *volume, i *instance) *Error {
	t := w.typeOf(i)
	if t.Xen {
		return refuse("UnsupportedOperation",
			"Multi-Attach volumes can be attached to instances of the Nitro System only; '%s' is a %s.", i.ID, i.Type)
	}
	if v.Type == "io1" && t.BlockExpress {
		return refuse("UnsupportedOperation",
			"io1 Multi-Attach volumes cannot be attached to instances with Block Express; '%s' is a %s.", i.ID, i.Type)
	}
	for _, a := range v.Attachments {
		if other := w.Instances[a.InstanceID]; v.Type == "io2" && other != nil && w.typeOf(other).BlockExpress != t.BlockExpress {
			return refuse("UnsupportedOperation", "The volume '%s' is attached to '%s'; instances with and without Block Express cannot share it.", v.ID, other.ID)
		}
	}
	return nil
}

// slots counts the used slots of the instance, and returns its attachment limit.
func (w *World) slots(i *instance) (used, limit int) {
	t := w.typeOf(i)
	used = len(i.Volumes)
	if t.Shared {
		used += max(len(i.Interfaces)-1, 0)
	}
	return used, t.Attachments
}

func (w *World) beginAttach(v *volume, i *instance, r *AttachVolumeRequest, hangs bool) *attachment {
	w.touchVolume(v)
	w.touchInstance(i)
	a := &attachment{InstanceID: i.ID, State: attaching, Device: r.Device, Since: w.now()}
	if r.EBSCardIndex != nil {
		a.Card = *r.EBSCardIndex
	}
	if w.faultHits(OtherName, v, i.ID) {
		a.Shown = w.otherName(i)
	}
	v.State = inUse
	v.Attachments = append(v.Attachments, a)
	i.Volumes = append(i.Volumes, v.ID)
	a.Stuck = hangs || w.restless(i, r.Device) || w.faultHits(StuckAttaching, v, i.ID)
	if !a.Stuck {
		a.Gen, _ = w.schedule(w.takes(AttachTransition, w.knobs.Times.Attach, v, i.ID),
			event{Kind: attachDone, ID: v.ID, At: i.ID})
	}
	return a
}

// restless: a Xen instance may still use a name that was just freed.
func (w *World) restless(i *instance, name string) bool {
	rest := time.Duration(w.knobs.Attach.NameRest)
	freed, ok := i.Freed[name]
	return ok && rest > 0 && w.typeOf(i).Xen && w.now().Sub(freed) < rest
}

func (w *World) finishAttach(v *volume, a *attachment) {
	i := w.Instances[a.InstanceID]
	if i == nil || a.State != attaching {
		return
	}
	if !w.present(v, a) {
		// It stays attaching: an attached volume must have its device.
		a.Gen, _ = w.schedule(Fixed(w.busyRetry()), event{Kind: attachDone, ID: v.ID, At: a.InstanceID})
		return
	}
	w.touchVolume(v)
	w.touchInstance(i)
	a.State = attached
	v.end(AttachTransition, w.now())
}

// present adds the device to the guest, if it runs, and reports whether that succeeded.
func (w *World) present(v *volume, a *attachment) bool {
	i := w.Instances[a.InstanceID]
	if w.devices == nil || i == nil || (i.State != running && i.State != pending) || a.Presented {
		return true
	}
	err := w.devices.Attach(DeviceAttachment{
		InstanceID: i.ID, VolumeID: v.ID, Name: a.name(), Xen: w.typeOf(i).Xen, Boot: v.BootOf == i.ID,
	})
	w.deviceError("attach", v.ID, err)
	a.Presented = err == nil
	return a.Presented
}

// presentAll brings the devices back after a restart.
func (w *World) presentAll() error {
	if w.devices == nil {
		return nil
	}
	if w.restored { // without its state the world must not delete data
		volumes := slices.AppendSeq(slices.Collect(maps.Keys(w.Volumes)), maps.Keys(w.Kept))
		if err := w.devices.Prune(volumes, slices.Collect(maps.Keys(w.Snapshots))); err != nil {
			return err
		}
	}
	for id, i := range w.Instances {
		if i.State == terminated {
			continue
		}
		if err := w.devices.AddInstance(id); err != nil {
			return err
		}
		for _, volumeID := range i.Volumes {
			v := w.Volumes[volumeID]
			if v == nil {
				continue
			}
			if a := v.at(id); a != nil {
				a.Presented = false
				if a.State == attached || a.State == detaching || a.State == busy {
					w.present(v, a)
				}
			}
		}
	}
	return nil
}

// drop removes an attachment that has ended.
func (w *World) drop(v *volume, a *attachment) {
	v.Attachments = slices.DeleteFunc(v.Attachments, func(other *attachment) bool { return other == a })
	v.end(DetachTransition, w.now())
	if len(v.Attachments) == 0 && v.State == inUse {
		v.State = available
	}
	i := w.Instances[a.InstanceID]
	if i == nil {
		return
	}
	i.Volumes = slices.DeleteFunc(i.Volumes, func(id string) bool { return id == v.ID })
	if i.Freed == nil {
		i.Freed = map[string]time.Time{}
	}
	i.Freed[a.Device] = w.now()
	if a.Forced && !w.knobs.Attach.ForceFreesName && i.State == running {
		i.Spoiled = append(i.Spoiled, a.Device)
	}
}
