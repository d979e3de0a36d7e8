package world

import (
	"fmt"
	"time"
)

func (w *World) touchSnapshot(s *snapshot) {
	w.dirty = true
	if w.knobs.Consistency.StaleOneIn > 0 {
		copied := *s
		copied.before, copied.Tags = nil, cloneTags(s.Tags)
		if s.Lock != nil {
			l := *s.Lock
			copied.Lock = &l
		}
		s.before, s.changed = &copied, w.now()
	}
}

func (w *World) seenSnapshot(s *snapshot, stale bool) *snapshot {
	if s.Visible.After(w.now()) {
		return nil
	}
	if stale && s.before != nil && w.fresh(s.changed) {
		return s.before
	}
	return s
}

// findSnapshot is the snapshot of an action; it may belong to another account that shares
// it.
func (w *World) findSnapshot(id string) (*snapshot, *Error) {
	if refusal := checkSnapshotID(id); refusal != nil {
		return nil, refusal
	}
	s := w.Snapshots[id]
	if s == nil || (w.knobs.Consistency.Actions && s.Visible.After(w.now())) {
		return nil, snapshotNotFound(id)
	}
	return s, nil
}

// CreateSnapshot begins a snapshot of the volume's present data.
func (w *World) CreateSnapshot(r *CreateSnapshotRequest) (_ *CreateSnapshotResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(r.VolumeID)
	if refusal != nil {
		return nil, refusal
	}
	t, refusal := tagsFor("snapshot", r.TagSpecifications)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := checkDescription(r.Description); refusal != nil {
		return nil, refusal
	}
	if refusal := checkLocation(r.Location, r.OutpostARN, v.Outpost); refusal != nil {
		return nil, refusal
	}
	if refusal := w.maySnapshot(v, 1); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	s, refusal := w.takeSnapshot(v, r.Description, r.OutpostARN, t)
	if refusal != nil {
		return nil, refusal
	}
	return &CreateSnapshotResponse{w.snapshotView(s)}, nil
}

const maxDescription = 255

func checkDescription(text string) *Error {
	if len(text) > maxDescription {
		return invalid("The description is longer than %d characters.", maxDescription)
	}
	return nil
}

func checkLocation(location, outpost, volumeOutpost string) *Error {
	switch {
	case location != "" && location != "regional" && location != "local":
		return invalid("Value (%s) for parameter location is invalid.", location)
	case outpost == "":
		return nil
	case malformedARN(outpost):
		return invalid("Value (%s) for parameter outpostArn is invalid.", outpost)
	case outpost != volumeOutpost:
		return combination("The volume is not on the Outpost %s, where its snapshot was asked for.", outpost)
	}
	return nil
}

// maySnapshot checks the limits per volume and of the account for a number of snapshots.
func (w *World) maySnapshot(v *volume, count int) *Error {
	if v.State != available && v.State != inUse {
		return incorrectState("Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	k := w.knobs.Snapshots
	most := limitOr(k.Pending, 5)
	if slow(v.Type) {
		most = limitOr(k.PendingSlow, 1)
	}
	waiting := 0
	for _, s := range w.Snapshots {
		if s.VolumeID == v.ID && s.State == pending {
			waiting++
		}
	}
	if most >= 0 && waiting >= most {
		return refuse("ConcurrentSnapshotLimitExceeded",
			"Maximum allowed in-progress snapshots for a single volume exceeded: %d of %s.", most, v.ID)
	}
	if every := time.Duration(k.Every); every > 0 && !v.SnapshotAt.IsZero() && w.now().Sub(v.SnapshotAt) < every {
		return refuse("SnapshotCreationPerVolumeRateExceeded", "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.")
	}
	return w.checkSnapshotQuota(count)
}

func (w *World) checkSnapshotQuota(count int) *Error {
	most, own := w.knobs.Quotas.Snapshots, 0
	for _, s := range w.Snapshots {
		if s.Owner == "" {
			own++
		}
	}
	if most > 0 && own+count > most {
		return refuse("SnapshotLimitExceeded", "You have exceeded your maximum number of snapshots, which is %d.", most)
	}
	return nil
}

// limitOr is the limit of a knob: 0 means the usual one, a negative number none (-1).
func limitOr(knob, usual int) int {
	switch {
	case knob == 0:
		return usual
	case knob < 0:
		return -1
	}
	return knob
}

func (w *World) takeSnapshot(v *volume, description, outpost string, t tags) (*snapshot, *Error) {
	s := &snapshot{
		VolumeID: v.ID, Size: v.Size, Description: description, Encrypted: v.Encrypted, KMSKey: v.KMSKey, Outpost: outpost, Tags: t,
		Doomed: w.faultHits(SnapshotFails, v, ""),
	}
	s.ID = w.newID("snap-")
	if w.devices != nil {
		if err := w.devices.CreateSnapshot(s.ID, v.ID); err != nil {
			return nil, internal(err)
		}
	}
	v.SnapshotAt = w.now()
	w.beginSnapshot(s, w.takes(SnapshotTransition, w.knobs.Times.Snapshot, v, ""))
	return s, nil
}

func (w *World) beginSnapshot(s *snapshot, takes Takes) {
	s.Order, s.State, s.Started = w.order(), pending, w.now()
	s.Visible = s.Started.Add(w.knobs.Consistency.Visible.pick(w.random))
	s.TagsVisible = s.Visible.Add(w.knobs.Consistency.Tags.pick(w.random))
	s.Gen, s.Due = w.schedule(takes, event{Kind: snapshotDone, ID: s.ID})
	w.Snapshots[s.ID] = s
}

func (w *World) finishSnapshot(s *snapshot) {
	w.touchSnapshot(s)
	if s.Doomed {
		s.State, s.Message = failed, "An internal error occurred while the snapshot was made."
		return
	}
	s.State, s.Completed = completed, w.now()
}

func (w *World) snapshotProgress(s *snapshot) string {
	switch s.State {
	case completed:
		return "100%"
	case pending:
		return fmt.Sprintf("%d%%", share(w.now(), s.Started, s.Due))
	}
	return "0%"
}

// DeleteSnapshot deletes a snapshot that is not locked and not used by an image.
func (w *World) DeleteSnapshot(r *DeleteSnapshotRequest) (_ *DeleteSnapshotResponse, err error) {
	w.begin()
	defer w.end(&err)
	s, refusal := w.findSnapshot(r.SnapshotID)
	if refusal != nil {
		return nil, refusal
	}
	switch {
	case s.Owner != "":
		return nil, refuse("UnauthorizedOperation", "You are not the owner of the snapshot '%s'.", s.ID).withStatus(403)
	case s.Image:
		return nil, refuse("InvalidSnapshot.InUse", "The snapshot %s is currently in use by ami-0123456789abcdef0",
			s.ID)
	case w.locked(s):
		return nil, refuse(orElse(w.knobs.Snapshots.LockedCode, "SnapshotLocked"),
			"The snapshot '%s' is locked in %s mode and cannot be deleted.", s.ID, s.Lock.Mode)
	case r.DryRun:
		return nil, dryRunPassed()
	}
	w.dirty = true
	delete(w.Snapshots, s.ID)
	w.dropRestores(s.ID)
	if w.devices != nil {
		w.deviceError("delete snapshot", s.ID, w.devices.DeleteSnapshot(s.ID))
	}
	return &DeleteSnapshotResponse{Done{true}}, nil
}
