package world

// CopyVolumes begins a copy of a volume's present data, in the same zone.
func (w *World) CopyVolumes(r *CopyVolumesRequest) (_ *CopyVolumesResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.planCopy(r)
	if refusal != nil {
		return nil, refusal
	}
	hash := w.hashOf(*r)
	known, refusal := w.admit(v, r.ClientToken, "CopyVolumes", hash)
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	if known == nil {
		if known, refusal = w.makeVolume(v, DataSource{VolumeID: r.SourceVolumeID}); refusal != nil {
			return nil, refusal
		}
		w.remember("CopyVolumes", r.ClientToken, hash, known)
	}
	return &CopyVolumesResponse{Volumes: []Volume{w.volumeView(known)}}, nil
}

// planCopy checks a request and returns the volume that it asks for. It checks the
// source first, so that a repeat after its deletion fails, with a token too.
func (w *World) planCopy(r *CopyVolumesRequest) (*volume, *Error) {
	if refusal := checkToken(r.ClientToken); refusal != nil {
		return nil, refusal
	}
	source, refusal := w.findVolume(r.SourceVolumeID)
	if refusal != nil {
		return nil, refusal
	}
	if source.State != available && source.State != inUse {
		return nil, incorrectState("Volume '%s' is in the '%s' state.", source.ID, source.State)
	}
	size := source.Size
	if r.Size != nil {
		if size = *r.Size; size < source.Size {
			return nil, invalid("The specified size %dGiB is smaller than the volume '%s' of %dGiB.",
				size, source.ID, source.Size)
		}
	}
	s, refusal := w.resolveShape(source.Zone, shapeRequest{
		volumeType: orElse(r.VolumeType,
			"gp2"), size: size, iops: r.IOPS, throughput: r.Throughput, multi: isTrue(r.MultiAttachEnabled),
	})
	if refusal != nil {
		return nil, refusal
	}
	v := &volume{
		Type: s.Type, Size: s.Size, IOPS: s.IOPS, Throughput: s.Throughput, Multi: s.Multi,
		Zone: source.Zone, Outpost: source.Outpost, SourceID: source.ID,
	}
	if refusal := w.planCopyEncryption(v, source, r); refusal != nil {
		return nil, refusal
	}
	v.Tags, refusal = tagsFor("volume", r.TagSpecifications)
	return v, refusal
}

// planCopyEncryption plans the encryption of a copy. The copy of an encrypted volume is
// always encrypted.
func (w *World) planCopyEncryption(v, source *volume, r *CopyVolumesRequest) *Error {
	if !source.Encrypted && w.knobs.Encryption.CopiesEncryptedOnly {
		return refuse("UnsupportedOperation", "The volume '%s' is not encrypted; only encrypted volumes can be copied.",
			source.ID)
	}
	if r.KMSKeyID != "" && !isTrue(r.Encrypted) {
		return refuse("InvalidParameterDependency",
			"The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	v.Encrypted = source.Encrypted || isTrue(r.Encrypted) || w.knobs.Encryption.ByDefault
	switch {
	case r.KMSKeyID != "":
		v.KMSKey = w.keyARN(r.KMSKeyID)
	case source.Encrypted:
		v.KMSKey = source.KMSKey
	case v.Encrypted:
		v.KMSKey = w.keyARN("alias/aws/ebs")
	}
	return nil
}

// CopySnapshot begins a copy of a snapshot within the region. A world has one region.
func (w *World) CopySnapshot(r *CopySnapshotRequest) (_ *CopySnapshotResponse, err error) {
	w.begin()
	defer w.end(&err)
	s, refusal := w.planSnapshotCopy(r)
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	s.ID = w.newID("snap-")
	if w.devices != nil {
		if err := w.devices.CopySnapshot(s.ID, r.SourceSnapshotID); err != nil {
			return nil, internal(err)
		}
	}
	w.beginSnapshot(s, w.knobs.Times.Snapshot)
	return &CopySnapshotResponse{SnapshotID: s.ID, Tags: tagItems(s.Tags)}, nil
}

const copiedVolume = "vol-ffffffff" // what EC2 shows as the volume of a copied snapshot

func (w *World) planSnapshotCopy(r *CopySnapshotRequest) (*snapshot, *Error) {
	switch {
	case r.SourceRegion == "":
		return nil, missing("sourceRegion")
	case r.SourceRegion != w.region || (r.DestinationRegion != "" && r.DestinationRegion != w.region):
		return nil, invalid("Value (%s) for parameter sourceRegion is invalid. There is only the region %s.",
			r.SourceRegion, w.region)
	case r.KMSKeyID != "" && !isTrue(r.Encrypted):
		return nil, refuse("InvalidParameterDependency",
			"The parameter KmsKeyId requires the parameter Encrypted to be set.")
	case r.CompletionDurationMinutes != nil && (*r.CompletionDurationMinutes < 15 || *r.CompletionDurationMinutes > 2880 || *r.CompletionDurationMinutes%15 != 0):
		return nil, invalid("Value ( %d ) for parameter completionDurationMinutes is invalid. Expecting a multiple of 15 from 15 to 2880.", *r.CompletionDurationMinutes)
	}
	source, refusal := w.findSnapshot(r.SourceSnapshotID)
	if refusal != nil {
		return nil, refusal
	}
	if source.State != completed {
		return nil, incorrectState("Snapshot is in invalid state - %s", source.State)
	}
	t, refusal := tagsFor("snapshot", r.TagSpecifications)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := checkDescription(r.Description); refusal != nil {
		return nil, refusal
	}
	copying, most := 0, limitOr(w.knobs.Snapshots.Copies, 20)
	for _, s := range w.Snapshots {
		if s.Copy && s.State == pending {
			copying++
		}
	}
	if most >= 0 && copying >= most {
		return nil, refuse("ResourceLimitExceeded",
			"Too many snapshot copies in progress. The limit is %d for this destination region.", most)
	}
	s := &snapshot{
		VolumeID: copiedVolume, Size: source.Size, Description: r.Description, Copy: true, Outpost: r.DestinationOutpostARN,
		Encrypted: source.Encrypted || isTrue(r.Encrypted) || w.knobs.Encryption.ByDefault, KMSKey: source.KMSKey, Tags: t,
	}
	if r.CompletionDurationMinutes != nil {
		s.Minutes = *r.CompletionDurationMinutes
	}
	if s.Encrypted && (r.KMSKeyID != "" || s.KMSKey == "") {
		s.KMSKey = w.keyARN(orElse(r.KMSKeyID, "alias/aws/ebs"))
	}
	return s, w.checkSnapshotQuota(1)
}

// BackImage sets whether an image uses the snapshot.
func (w *World) BackImage(snapshotID string, backs bool) (err error) {
	w.begin()
	defer w.end(&err)
	s, refusal := w.findSnapshot(snapshotID)
	if refusal != nil {
		return refusal
	}
	w.dirty, s.Image = true, backs
	return nil
}

// AddForeignSnapshot adds a completed snapshot of another account that this one
// can use: "amazon", or an account's ID. Size is in GiB.
func (w *World) AddForeignSnapshot(owner string, size int32, public bool) (id string, err error) {
	w.begin()
	defer w.end(&err)
	s := &snapshot{
		ID: w.newID("snap-"), Order: w.order(), VolumeID: copiedVolume, State: completed, Started: w.now(), Completed: w.now(),
		Size: size, Owner: owner, Public: public, Tags: tags{},
	}
	if w.devices != nil {
		if err := w.devices.CreateVolume(s.ID, size, DataSource{}); err != nil {
			return "", internal(err)
		}
		err := w.devices.CreateSnapshot(s.ID, s.ID)
		w.deviceError("delete", s.ID, w.devices.DeleteVolume(s.ID))
		if err != nil {
			return "", internal(err)
		}
	}
	w.Snapshots[s.ID] = s
	return s.ID, nil
}
