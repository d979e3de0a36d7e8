package world

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

const staleFor = 5 * time.Second

// touchVolume stores the previous state for stale describes, before a change.
func (w *World) touchVolume(v *volume) {
	w.dirty = true
	if w.knobs.Consistency.StaleOneIn > 0 {
		v.before, v.changed = v.clone(), w.now()
	}
}

// stale reports whether a describe answers with the previous states.
func (w *World) stale() bool {
	n := w.knobs.Consistency.StaleOneIn
	return n > 0 && w.random.IntN(n) == 0
}

// fresh reports whether a change is so recent that a describe may lack it.
func (w *World) fresh(changed time.Time) bool {
	span := time.Duration(w.knobs.Consistency.StaleFor)
	if span == 0 {
		span = staleFor
	}
	return w.now().Sub(changed) < span
}

// seen is the volume as a describe shows it; nil while it does not.
func (w *World) seen(v *volume, stale bool) *volume {
	if v.Visible.After(w.now()) {
		return nil
	}
	if stale && v.before != nil && w.fresh(v.changed) {
		return v.before
	}
	return v
}

// Ended returns when a volume's last transition of a kind ended, without the lag of
// describes; the zero time if none has.
func (w *World) Ended(kind Transition, volumeID string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.Volumes[volumeID]; v != nil {
		return v.Ended[kind]
	}
	return time.Time{}
}

// findVolume is the volume of an action.
func (w *World) findVolume(id string) (*volume, *Error) {
	if refusal := checkVolumeID(id); refusal != nil {
		return nil, refusal
	}
	v := w.Volumes[id]
	if v == nil || (w.knobs.Consistency.Actions && v.Visible.After(w.now())) {
		return nil, volumeNotFound(id)
	}
	return v, nil
}

// DeleteVolume deletes a volume that is not attached.
func (w *World) DeleteVolume(r *DeleteVolumeRequest) (_ *DeleteVolumeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(r.VolumeID)
	if refusal != nil {
		return nil, refusal
	}
	switch {
	case v.Operator != "":
		return nil, managed(v)
	case len(v.Attachments) > 0:
		return nil, refuse("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Attachments[0].InstanceID)
	case v.State == deleting:
		return nil, volumeNotFound(v.ID)
	case v.State == creating:
		return nil, incorrectState("Volume '%s' is in the '%s' state.", v.ID, v.State)
	case r.DryRun:
		return nil, dryRunPassed()
	}
	w.deleteVolume(v)
	return &DeleteVolumeResponse{Done{true}}, nil
}

func managed(v *volume) *Error {
	return refuse("OperationNotPermitted", "The volume '%s' is managed by %s.", v.ID, v.Operator)
}

func (w *World) deleteVolume(v *volume) {
	w.touchVolume(v)
	v.State = deleting
	w.burnToken(v)
	w.schedule(w.knobs.Times.Delete, event{Kind: volumeGone, ID: v.ID})
}

func (w *World) forgetVolume(v *volume) {
	delete(w.Volumes, v.ID)
	w.dirty = true
	w.burnToken(v)
	if w.knobs.Retain || w.faultHits(DeleteRetains, v, "") {
		w.Kept[v.ID] = v
		return
	}
	if w.devices != nil {
		w.deviceError("delete volume", v.ID, w.devices.DeleteVolume(v.ID))
	}
}

// Retained lists the deleted volumes that a rule keeps.
func (w *World) Retained() []string {
	w.begin()
	var err error
	defer w.end(&err)
	var ids []string
	for id := range w.Kept {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Restore makes a retained volume available again.
func (w *World) Restore(id string) (err error) {
	w.begin()
	defer w.end(&err)
	v := w.Kept[id]
	if v == nil {
		return volumeNotFound(id)
	}
	delete(w.Kept, id)
	v.State, v.before = available, nil
	w.Volumes[id] = v
	w.dirty = true
	return nil
}

// volumesOf lists the volumes of a describe in order, in the state that it shows. An
// unknown ID fails the whole call.
func (w *World) volumesOf(ids []string, filters []Filter, stale bool) ([]*volume, *Error) {
	if len(ids) > 0 {
		return w.volumesByID(ids, stale)
	}
	var all []*volume
	if exact, ok := exactValues(filters, "volume-id"); ok {
		for id := range exact {
			if v := w.Volumes[id]; v != nil {
				all = w.appendSeen(all, v, stale)
			}
		}
	} else {
		for _, v := range w.Volumes {
			all = w.appendSeen(all, v, stale)
		}
	}
	slices.SortFunc(all, func(a, b *volume) int { return cmp.Compare(a.Order, b.Order) })
	return all, nil
}

func (w *World) appendSeen(all []*volume, v *volume, stale bool) []*volume {
	if s := w.seen(v, stale); s != nil {
		return append(all, s)
	}
	return all
}

func (w *World) volumesByID(ids []string, stale bool) ([]*volume, *Error) {
	found := map[string]*volume{}
	var unknown []string
	for _, id := range ids {
		if refusal := checkVolumeID(id); refusal != nil {
			return nil, refusal
		}
		if v := w.Volumes[id]; v != nil && w.seen(v, stale) != nil {
			found[id] = w.seen(v, stale)
			continue
		}
		unknown = append(unknown, id)
	}
	if len(unknown) > 0 {
		return nil, volumeNotFound(unknown...)
	}
	all := make([]*volume, 0, len(found))
	for _, v := range found {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *volume) int { return cmp.Compare(a.Order, b.Order) })
	return all, nil
}

// exactValues are the values of a filter if none of them has wildcards, so that they can
// be looked up.
func exactValues(filters []Filter, name string) (map[string]bool, bool) {
	for _, f := range filters {
		if f.Name != name || anyOf(f.Values, hasWildcard) {
			continue
		}
		exact := map[string]bool{}
		for _, value := range f.Values {
			exact[value] = true
		}
		return exact, true
	}
	return nil, false
}

// pageWithIDs rejects a page size together with IDs.
func pageWithIDs(ids []string, p Page, set string) *Error {
	if len(ids) > 0 && p.MaxResults != nil {
		return combination("The parameter %s cannot be used with the parameter maxResults", set)
	}
	return nil
}

// DescribeVolumes lists volumes.
func (w *World) DescribeVolumes(r *DescribeVolumesRequest) (_ *DescribeVolumesResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.VolumeIDs, r.Page, "volumeSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, w.volumeFilters(), w.tagsOfVolume)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"volumes", r.VolumeIDs, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	all, refusal := w.volumesOf(r.VolumeIDs, r.Filters, w.stale())
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	chosen, next := paginate(p, all, func(v *volume) int64 { return v.Order }, matches)
	answer := &DescribeVolumesResponse{NextToken: next}
	for _, v := range chosen {
		answer.Volumes = append(answer.Volumes, w.volumeView(v))
	}
	return answer, nil
}

// tagsOfVolume hides the tags from filters while they lag.
func (w *World) tagsOfVolume(v *volume) tags {
	if v.TagsVisible.After(w.now()) {
		return nil
	}
	return v.Tags
}

func (w *World) volumeFilters() filterTable[volume] {
	ofAttachments := func(value func(*attachment) string) func(*volume) []string {
		return func(v *volume) []string {
			values := make([]string, len(v.Attachments))
			for i, a := range v.Attachments {
				values[i] = value(a)
			}
			return values
		}
	}
	one := func(value func(*volume) string) func(*volume) []string {
		return func(v *volume) []string { return []string{value(v)} }
	}
	return filterTable[volume]{
		"volume-id":                        one(func(v *volume) string { return v.ID }),
		"status":                           one(func(v *volume) string { return v.State }),
		"availability-zone":                one(func(v *volume) string { return v.Zone }),
		"availability-zone-id":             one(func(v *volume) string { return w.zoneID(v.Zone) }),
		"create-time":                      one(func(v *volume) string { return stamp(v.Created) }),
		"encrypted":                        one(func(v *volume) string { return strconv.FormatBool(v.Encrypted) }),
		"fast-restored":                    one(func(v *volume) string { return strconv.FormatBool(v.FastRestored) }),
		"multi-attach-enabled":             one(func(v *volume) string { return strconv.FormatBool(v.Multi) }),
		"operator.managed":                 one(func(v *volume) string { return strconv.FormatBool(v.Operator != "") }),
		"operator.principal":               one(func(v *volume) string { return v.Operator }),
		"sse-type":                         one(func(v *volume) string { return sseType(v.Encrypted) }),
		"size":                             one(func(v *volume) string { return strconv.Itoa(int(v.Size)) }),
		"snapshot-id":                      one(func(v *volume) string { return v.SnapshotID }),
		"source-volume-id":                 one(func(v *volume) string { return v.SourceID }),
		"volume-type":                      one(func(v *volume) string { return v.Type }),
		"attachment.instance-id":           ofAttachments(func(a *attachment) string { return a.InstanceID }),
		"attachment.device":                ofAttachments((*attachment).name),
		"attachment.status":                ofAttachments(func(a *attachment) string { return a.State }),
		"attachment.attach-time":           ofAttachments(func(a *attachment) string { return stamp(a.Since) }),
		"attachment.delete-on-termination": ofAttachments(func(a *attachment) string { return strconv.FormatBool(a.DeleteOnTermination) }),
	}
}

// sseType is the server-side encryption of a resource: EBS encrypts with keys of
// KMS or not at all (EC2 API, SSEType).
func sseType(encrypted bool) string {
	if encrypted {
		return "sse-kms"
	}
	return "none"
}

// stamp is a time in the form of filters.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
