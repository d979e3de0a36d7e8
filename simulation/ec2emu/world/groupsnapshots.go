package world

import "slices"

// CreateSnapshots begins snapshots of an instance's volumes, all at one point in time.
func (w *World) CreateSnapshots(r *CreateSnapshotsRequest) (_ *CreateSnapshotsResponse, err error) {
	w.begin()
	defer w.end(&err)
	given, refusal := tagsFor("snapshot", r.TagSpecifications)
	if refusal != nil {
		return nil, refusal
	}
	if r.CopyTagsFromSource != "" && r.CopyTagsFromSource != "volume" {
		return nil, invalid("Value (%s) for parameter copyTagsFromSource is invalid.", r.CopyTagsFromSource)
	}
	if refusal := checkDescription(r.Description); refusal != nil {
		return nil, refusal
	}
	volumes, refusal := w.groupOf(r)
	if refusal != nil {
		return nil, refusal
	}
	for _, v := range volumes {
		if refusal := w.maySnapshot(v, len(volumes)); refusal != nil {
			return nil, refusal
		}
		if refusal := checkTagCount(groupTags(v, given, r.CopyTagsFromSource)); refusal != nil {
			return nil, refusal
		}
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	answer := &CreateSnapshotsResponse{}
	for _, v := range volumes {
		s, refusal := w.takeSnapshot(v, r.Description, r.OutpostARN, groupTags(v, given, r.CopyTagsFromSource))
		if refusal != nil {
			return nil, refusal
		}
		answer.Snapshots = append(answer.Snapshots, w.snapshotInfo(s))
	}
	return answer, nil
}

// groupOf is the volumes that a group snapshot is of.
func (w *World) groupOf(r *CreateSnapshotsRequest) ([]*volume, *Error) {
	spec := r.InstanceSpecification
	i, refusal := w.findInstance(spec.InstanceID)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := checkLocation(r.Location, r.OutpostARN, i.Outpost); refusal != nil {
		return nil, refusal
	}
	if i.State != running && i.State != stopped {
		return nil, refuse("IncorrectInstanceState",
			"The instance '%s' is in the state '%s', in which no snapshots can be taken.", i.ID, i.State)
	}
	for _, id := range spec.ExcludeDataVolumeIDs {
		v := w.Volumes[id]
		switch {
		case malformed(id, "vol-", "") != nil:
			return nil, checkVolumeID(id)
		case v == nil || v.at(i.ID) == nil:
			return nil, invalid("The volume '%s' is not attached to the instance '%s'.", id, i.ID)
		case v.BootOf == i.ID:
			return nil, invalid("The volume '%s' is the root volume; use ExcludeBootVolume.", id)
		}
	}
	var volumes []*volume
	w.eachAttached(i, func(v *volume, a *attachment) {
		boot := v.BootOf == i.ID
		if a.State != attached || (boot && spec.ExcludeBootVolume) || slices.Contains(spec.ExcludeDataVolumeIDs, v.ID) {
			return
		}
		volumes = append(volumes, v)
	})
	if len(volumes) == 0 {
		return nil, combination("There is no volume of the instance '%s' to take a snapshot of.", i.ID)
	}
	return volumes, nil
}

func groupTags(v *volume, given tags, from string) tags {
	t := cloneTags(given)
	if from == "volume" {
		for key, value := range v.Tags {
			if _, ok := t[key]; !ok {
				t[key] = value
			}
		}
	}
	return t
}

func (w *World) snapshotInfo(s *snapshot) SnapshotInfo {
	return SnapshotInfo{
		SnapshotID: s.ID, VolumeID: s.VolumeID, State: s.State, VolumeSize: s.Size, StartTime: s.Started, Progress: w.snapshotProgress(s),
		Description: s.Description, Encrypted: s.Encrypted, OwnerID: w.account, OutpostARN: s.Outpost, Tags: tagItems(s.Tags),
	}
}
