package world

// Stick makes the attachment of a volume to an instance stay attaching or detaching.
func (w *World) Stick(volumeID, instanceID string) error {
	return w.changeTransition(volumeID, instanceID, func(_ *volume, a *attachment) {
		a.Stuck, a.Gen = true, w.order() // the event under way is then ignored
	})
}

// Unstick continues a stuck attachment. The transition takes its usual time from now.
func (w *World) Unstick(volumeID, instanceID string) error {
	return w.changeTransition(volumeID, instanceID, func(v *volume, a *attachment) {
		if !a.Stuck {
			return
		}
		a.Stuck = false
		kind, takes := attachDone, w.knobs.Times.Attach
		if a.State == detaching {
			kind, takes = detachDone, w.knobs.Times.Detach
		}
		a.Gen, _ = w.schedule(takes, event{Kind: kind, ID: v.ID, At: a.InstanceID})
	})
}

// changeTransition changes an attachment that is attaching or detaching.
func (w *World) changeTransition(volumeID, instanceID string, change func(*volume, *attachment)) (err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(volumeID)
	if refusal != nil {
		return refusal
	}
	a := v.at(instanceID)
	switch {
	case a == nil:
		return refuse("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s'",
			volumeID, instanceID)
	case a.State != attaching && a.State != detaching:
		return incorrectState("The attachment of '%s' to '%s' is '%s'.", volumeID, instanceID, a.State)
	}
	w.dirty = true
	change(v, a)
	return nil
}
