package world

import (
	"errors"
	"time"
)

const busyRetry = 200 * time.Millisecond

// DetachVolume begins the end of an attachment: detaching, or busy while the
// guest uses the device, then gone.
func (w *World) DetachVolume(r *DetachVolumeRequest) (_ *DetachVolumeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, a, refusal := w.detachSubjects(r)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := w.mayDetach(v, a, r); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	w.beginDetach(v, a, r.Force)
	return &DetachVolumeResponse{w.attachmentView(v, a)}, nil
}

// detachSubjects finds the volume and the attachment of a request.
func (w *World) detachSubjects(r *DetachVolumeRequest) (*volume, *attachment, *Error) {
	if r.InstanceID != "" {
		if refusal := checkInstanceID(r.InstanceID); refusal != nil {
			return nil, nil, refusal
		}
	}
	v, refusal := w.findVolume(r.VolumeID)
	if refusal != nil {
		return nil, nil, refusal
	}
	if r.InstanceID != "" {
		if _, refusal := w.findInstance(r.InstanceID); refusal != nil {
			return nil, nil, refusal
		}
	}
	switch {
	case len(v.Attachments) == 0:
		return nil, nil, incorrectState("Volume '%s' is in the '%s' state.", v.ID, v.State)
	case r.InstanceID == "" && v.Multi:
		return nil, nil, refuse("MissingParameter",
			"The request must contain the parameter instanceId, as the volume '%s' is enabled for Multi-Attach", v.ID)
	case r.InstanceID == "":
		return v, v.Attachments[0], nil
	}
	a := v.at(r.InstanceID)
	if a == nil {
		return nil, nil, refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s'",
			v.ID, r.InstanceID)
	}
	return v, a, nil
}

func (w *World) mayDetach(v *volume, a *attachment, r *DetachVolumeRequest) *Error {
	i := w.Instances[a.InstanceID]
	switch {
	case v.Operator != "":
		return managed(v)
	case r.Device != "" && r.Device != a.Device && r.Device != a.name():
		return refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'",
			v.ID, a.InstanceID, r.Device)
	case v.BootOf == a.InstanceID && i != nil && i.State != stopped:
		return refuse("OperationNotPermitted", "Unable to detach root volume '%s' from instance '%s'",
			v.ID, a.InstanceID)
	case a.State == detaching && !r.Force:
		return incorrectState("Volume '%s' is in the 'detaching' state.", v.ID)
	}
	return nil
}

func (w *World) beginDetach(v *volume, a *attachment, force bool) {
	w.touchVolume(v)
	if i := w.Instances[a.InstanceID]; i != nil {
		w.touchInstance(i)
	}
	a.State = detaching
	a.Forced = a.Forced || force
	a.Stuck = !force && w.faultHits(StuckDetaching, v, a.InstanceID)
	if a.Stuck {
		a.Gen = w.order() // no transition under way is for it any more
		return
	}
	a.Gen, _ = w.schedule(w.takes(DetachTransition, w.knobs.Times.Detach, v, a.InstanceID),
		event{Kind: detachDone, ID: v.ID, At: a.InstanceID})
}

// finishDetach removes the device, or tries again later if it is busy.
func (w *World) finishDetach(v *volume, a *attachment) {
	if a.State != detaching && a.State != busy {
		return
	}
	if w.guestHolds(v, a) {
		if a.State != busy {
			w.touchVolume(v)
			a.State = busy
		}
		a.Gen, _ = w.schedule(Fixed(w.busyRetry()), event{Kind: detachDone, ID: v.ID, At: a.InstanceID})
		return
	}
	w.touchVolume(v)
	if i := w.Instances[a.InstanceID]; i != nil {
		w.touchInstance(i)
	}
	w.drop(v, a)
}

// guestHolds removes the device and reports whether the guest still uses it.
func (w *World) guestHolds(v *volume, a *attachment) bool {
	if !a.Forced && w.hasFault(StaysBusy, v, a.InstanceID) {
		return true
	}
	if w.devices == nil || !a.Presented {
		return false
	}
	err := w.devices.Detach(a.InstanceID, v.ID, a.Forced)
	if errors.Is(err, ErrDeviceBusy) {
		return true
	}
	w.deviceError("detach", v.ID, err)
	a.Presented = false
	return false
}

func (w *World) busyRetry() time.Duration {
	if d := time.Duration(w.knobs.Times.BusyRetry); d > 0 {
		return d
	}
	return busyRetry
}

// hasFault reports whether such a fault is armed, without counting it down.
func (w *World) hasFault(kind FaultKind, v *volume, instanceID string) bool {
	return anyOf(w.faults, func(m Fault) bool { return m.Kind == kind && m.concerns(v, instanceID) })
}
