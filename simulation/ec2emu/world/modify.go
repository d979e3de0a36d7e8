package world

import (
	"slices"
	"time"
)

const (
	cooldownWindow = 24 * time.Hour
	cooldownMost   = 4
	cooldownOld    = 6 * time.Hour
)

// ModifyVolume begins a change of size, type or performance: modifying, then
// optimizing, when the change is visible, then completed. A call without a change counts
// too.
func (w *World) ModifyVolume(r *ModifyVolumeRequest) (_ *ModifyVolumeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(r.VolumeID)
	if refusal != nil {
		return nil, refusal
	}
	to, refusal := w.planModification(v, r)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := w.mayModify(v, to); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	return &ModifyVolumeResponse{w.modificationView(v, w.beginModification(v, to))}, nil
}

// planModification checks the values and adds those that are not set.
func (w *World) planModification(v *volume, r *ModifyVolumeRequest) (shape, *Error) {
	from := v.shape()
	if r.Size == nil && r.VolumeType == "" && r.IOPS == nil && r.Throughput == nil && r.MultiAttachEnabled == nil {
		return from, missing("size, volumeType, iops, throughput or multiAttachEnabled")
	}
	ask := shapeRequest{volumeType: orElse(r.VolumeType, v.Type), size: v.Size, iops: r.IOPS, throughput: r.Throughput,
		multi: v.Multi}
	if r.Size != nil {
		ask.size = *r.Size
	}
	if r.MultiAttachEnabled != nil {
		ask.multi = *r.MultiAttachEnabled
	}
	if ask.size < v.Size {
		return from, invalid("New size cannot be smaller than existing size")
	}
	if refusal := w.checkSharedChange(v, r, ask); refusal != nil {
		return from, refusal
	}
	if slow(ask.volumeType) && v.BootOf != "" {
		return from, combination("The volume '%s' is a root volume; its type cannot be %s.", v.ID, ask.volumeType)
	}
	keep(&ask, v)
	return w.resolveShape(v.Zone, ask)
}

// keep adds the performance that stays: IOPS if the type stays, throughput from gp3 to
// gp3.
func keep(ask *shapeRequest, v *volume) {
	same := ask.volumeType == v.Type
	if ask.iops == nil && v.IOPS > 0 && same && v.Type != "gp2" {
		iops := v.IOPS
		ask.iops = &iops
	}
	if ask.throughput == nil && v.Throughput > 0 && same {
		throughput := v.Throughput
		ask.throughput = &throughput
	}
	if ask.iops == nil && !same && (ask.volumeType == "io1" || ask.volumeType == "io2") {
		iops := int32(3000)
		ask.iops = &iops
	}
}

// checkSharedChange rejects what multi-attach forbids.
func (w *World) checkSharedChange(v *volume, r *ModifyVolumeRequest, ask shapeRequest) *Error {
	if v.Multi && v.Type == "io1" && (r.Size != nil || r.VolumeType != "" || r.IOPS != nil) {
		return refuse("UnsupportedOperation", "The volume '%s' is an io1 volume enabled for Multi-Attach; its type, size and iops cannot be changed.", v.ID)
	}
	if v.Multi && ask.volumeType != v.Type {
		return refuse("UnsupportedOperation",
			"The volume '%s' is enabled for Multi-Attach; its type cannot be changed.", v.ID)
	}
	if ask.multi == v.Multi {
		return nil
	}
	switch {
	case ask.volumeType != "io2" || v.Type != "io2":
		return refuse("UnsupportedOperation",
			"Multi-Attach can be changed for io2 volumes only; the volume '%s' is %s.", v.ID, v.Type)
	case ask.multi && len(v.Attachments) > 0:
		return incorrectState("Multi-Attach can be enabled while the volume '%s' is detached only.", v.ID)
	case !ask.multi && len(v.Attachments) > 1:
		return incorrectState("Multi-Attach can be disabled while the volume '%s' is attached to one instance at most.",
			v.ID)
	}
	return nil
}

func (w *World) mayModify(v *volume, to shape) *Error {
	switch {
	case v.Operator != "":
		return managed(v)
	case v.State != available && v.State != inUse:
		return incorrectState("Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if refusal := w.cooldown(v); refusal != nil {
		return refusal
	}
	if most := w.knobs.Quotas.ModifiedGiB; most > 0 && w.modifiedGiB()+int64(to.Size) > most {
		return refuse("VolumeModificationSizeLimitExceeded",
			"You have exceeded your maximum storage under modification of %d GiB.", most)
	}
	return nil
}

// cooldown rejects a modification too soon after the last one.
func (w *World) cooldown(v *volume) *Error {
	last := v.Last
	if last == nil {
		return nil
	}
	if last.State == modifying || last.State == optimizing {
		return refuse("IncorrectModificationState", "Volume %s is in the state %s, and so cannot currently be modified; wait until it is completed.", v.ID, upper(last.State))
	}
	now := w.now()
	var next time.Time
	switch w.knobs.Cooldown {
	case CooldownOff:
	case CooldownSixHours:
		next = last.Start.Add(cooldownOld)
	default:
		if n := len(v.Modified); n >= cooldownMost {
			next = v.Modified[n-cooldownMost].Add(cooldownWindow)
		}
	}
	if !next.After(now) {
		return nil
	}
	return refuse("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit. The volume %s can be modified again at %s.", v.ID, next.Format(time.RFC3339))
}

// modifiedGiB is the storage of all volumes whose modification is under way.
func (w *World) modifiedGiB() int64 {
	var sum int64
	for _, v := range w.Volumes {
		if v.Last != nil && (v.Last.State == modifying || v.Last.State == optimizing) {
			sum += int64(v.Last.To.Size)
		}
	}
	return sum
}

func (w *World) beginModification(v *volume, to shape) *modification {
	w.touchVolume(v)
	now := w.now()
	m := &modification{State: modifying, From: v.shape(), To: to, Start: now, Doomed: w.faultHits(ModifyFails, v, "")}
	m.Visible = now.Add(w.knobs.Consistency.Visible.pick(w.random))
	if v.Last != nil && m.Visible.After(now) {
		before := *v.Last
		before.Before = nil
		m.Before = &before
	}
	v.Last = m
	v.Modified = append(slices.DeleteFunc(v.Modified, func(t time.Time) bool { return now.Sub(t) >= cooldownWindow }),
		now)
	m.Gen, m.Due = w.schedule(w.takes(ModifyTransition, w.knobs.Times.Modify, v, ""),
		event{Kind: modifyOptimizes, ID: v.ID})
	return m
}

// optimizeModification makes the change visible.
func (w *World) optimizeModification(v *volume) {
	w.touchVolume(v)
	m := v.Last
	if m.Doomed {
		m.State, m.Message, m.End = modificationFailed, "The modification failed because of an internal error; try it again.", w.now()
		return
	}
	v.Type, v.Size, v.IOPS, v.Throughput, v.Multi = m.To.Type, m.To.Size, m.To.IOPS, m.To.Throughput, m.To.Multi
	if w.devices != nil && m.To.Size != m.From.Size {
		w.deviceError("grow", v.ID, w.devices.GrowVolume(v.ID, v.Size))
	}
	m.State, m.Optimizing = optimizing, w.now()
	v.end(ModifyTransition, w.now())
	_, m.Due = w.schedule(w.knobs.Times.Optimize, event{Kind: modifyDone, ID: v.ID, Gen: m.Gen})
}

func (w *World) finishModification(v *volume) {
	w.touchVolume(v)
	v.Last.State, v.Last.End = completed, w.now()
}

// seenModification is the one that a describe shows, nil when it shows none.
func (w *World) seenModification(v *volume) *modification {
	m := v.Last
	if m != nil && m.Visible.After(w.now()) {
		return m.Before
	}
	return m
}

func (w *World) modificationView(v *volume, m *modification) VolumeModification {
	progress := w.progress(m)
	from, to := m.From, m.To
	return VolumeModification{
		VolumeID: v.ID, ModificationState: m.State, StatusMessage: m.Message, Progress: &progress, StartTime: m.Start, EndTime: m.End,
		TargetSize: &to.Size, TargetIOPS: positive(to.IOPS), TargetVolumeType: to.Type, TargetThroughput: positive(to.Throughput), TargetMultiAttachEnabled: &to.Multi,
		OriginalSize: &from.Size, OriginalIOPS: positive(from.IOPS), OriginalVolumeType: from.Type, OriginalThroughput: positive(from.Throughput), OriginalMultiAttachEnabled: &from.Multi,
	}
}

// progress grows while the volume is optimized.
func (w *World) progress(m *modification) int64 {
	switch m.State {
	case completed:
		return 100
	case optimizing:
		return share(w.now(), m.Optimizing, m.Due)
	}
	return 0
}

// share is how much of the time has passed, in percent, at most 99.
func share(now, from, to time.Time) int64 {
	whole := to.Sub(from)
	if whole <= 0 {
		return 0
	}
	return min(max(int64(100*now.Sub(from)/whole), 0), 99)
}
