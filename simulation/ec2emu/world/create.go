package world

import (
	"strings"
	"time"

	"github.com/google/uuid"
)

// CreateVolume begins a volume: creating, then available.
func (w *World) CreateVolume(r *CreateVolumeRequest) (_ *CreateVolumeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.planVolume(r)
	if refusal != nil {
		return nil, refusal
	}
	hash := w.hashOf(*r)
	known, refusal := w.admit(v, r.ClientToken, "CreateVolume", hash)
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	if known == nil {
		if known, refusal = w.makeVolume(v, DataSource{SnapshotID: v.SnapshotID}); refusal != nil {
			return nil, refusal
		}
		w.remember("CreateVolume", r.ClientToken, hash, known)
	}
	return &CreateVolumeResponse{w.volumeView(known)}, nil
}

// planVolume checks a request and returns the requested volume, which is not created yet.
func (w *World) planVolume(r *CreateVolumeRequest) (*volume, *Error) {
	if refusal := checkToken(r.ClientToken); refusal != nil {
		return nil, refusal
	}
	zone, refusal := w.pickZone(r.AvailabilityZone, r.AvailabilityZoneID)
	if refusal != nil {
		return nil, refusal
	}
	if r.OutpostARN != "" && malformedARN(r.OutpostARN) {
		return nil, invalid("Value (%s) for parameter outpostArn is invalid.", r.OutpostARN)
	}
	source, refusal := w.sourceSnapshot(r)
	if refusal != nil {
		return nil, refusal
	}
	size, refusal := sizeFrom(r.Size, source)
	if refusal != nil {
		return nil, refusal
	}
	s, refusal := w.resolveShape(zone, shapeRequest{
		volumeType: orElse(r.VolumeType,
			"gp2"), size: size, iops: r.IOPS, throughput: r.Throughput, multi: isTrue(r.MultiAttachEnabled),
	})
	if refusal != nil {
		return nil, refusal
	}
	if s.Multi && s.Type == "io1" && !w.io1Shares() {
		return nil, refuse("UnsupportedOperation", "Multi-Attach for io1 volumes is not supported in the region %s.",
			w.region)
	}
	v := &volume{
		Type: s.Type, Size: s.Size, IOPS: s.IOPS, Throughput: s.Throughput, Multi: s.Multi,
		Zone: zone, Outpost: r.OutpostARN, SnapshotID: r.SnapshotID,
	}
	if r.Operator != nil {
		v.Operator = r.Operator.Principal
	}
	if refusal := w.planEncryption(v, r.Encrypted, r.KMSKeyID, source); refusal != nil {
		return nil, refusal
	}
	if refusal := planRate(v, r.VolumeInitializationRate); refusal != nil {
		return nil, refusal
	}
	v.Tags, refusal = tagsFor("volume", r.TagSpecifications)
	return v, refusal
}

// sourceSnapshot is the snapshot to restore, nil when none is named.
func (w *World) sourceSnapshot(r *CreateVolumeRequest) (*snapshot, *Error) {
	if r.SnapshotID == "" {
		return nil, nil
	}
	s, refusal := w.findSnapshot(r.SnapshotID)
	if refusal != nil {
		return nil, refusal
	}
	if s.State != completed {
		return nil, incorrectState("Snapshot is in invalid state - %s", s.State)
	}
	if s.Outpost != r.OutpostARN {
		return nil, combination("The snapshot '%s' and the volume must be on the same Outpost.", s.ID)
	}
	return s, nil
}

func sizeFrom(size *int32, source *snapshot) (int32, *Error) {
	switch {
	case size == nil && source == nil:
		return 0, missing("size/snapshotId")
	case size == nil:
		return source.Size, nil
	case source != nil && *size < source.Size:
		return 0, invalid("The specified size %dGiB is smaller than the snapshot '%s' of %dGiB.",
			*size, source.ID, source.Size)
	}
	return *size, nil
}

func (w *World) planEncryption(v *volume, encrypted *bool, key string, source *snapshot) *Error {
	if key != "" && !isTrue(encrypted) {
		return refuse("InvalidParameterDependency",
			"The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	from := source != nil && source.Encrypted
	if from && encrypted != nil && !*encrypted {
		return combination("The snapshot '%s' is encrypted; the volume cannot be created without encryption.",
			source.ID)
	}
	v.Encrypted = isTrue(encrypted) || from || w.knobs.Encryption.ByDefault
	switch {
	case !v.Encrypted:
	case key != "":
		v.KMSKey = w.keyARN(key)
	case from:
		v.KMSKey = source.KMSKey
	default:
		v.KMSKey = w.keyARN("alias/aws/ebs")
	}
	return nil
}

func planRate(v *volume, rate *int32) *Error {
	switch {
	case rate == nil:
		return nil
	case v.SnapshotID == "":
		return refuse("InvalidParameterDependency",
			"The parameter VolumeInitializationRate requires the parameter SnapshotId to be set.")
	case *rate < 100 || *rate > 300:
		return invalid("Value ( %d ) for parameter volumeInitializationRate is invalid. Expecting a value from 100 to 300.", *rate)
	}
	v.Rate = *rate
	return nil
}

// admit checks the quota. If the client token already names a volume, it returns
// that volume.
func (w *World) admit(v *volume, clientToken, action, hash string) (*volume, *Error) {
	quota := w.checkQuota(v)
	if quota != nil && w.knobs.Tokens.QuotaFirst {
		return nil, quota
	}
	known, refusal := w.recall(action, clientToken, hash)
	if known != nil || refusal != nil {
		return known, refusal
	}
	if quota != nil {
		return nil, quota
	}
	return nil, w.checkRoom(v)
}

func (w *World) checkQuota(v *volume) *Error {
	q := w.knobs.Quotas
	if q == (Quotas{}) {
		return nil
	}
	storage, iops := int64(v.Size), int64(0)
	if v.provisioned() {
		iops = int64(v.IOPS)
	}
	for _, other := range w.Volumes {
		storage += int64(other.Size)
		if other.provisioned() {
			iops += int64(other.IOPS)
		}
	}
	switch {
	case q.Volumes > 0 && len(w.Volumes) >= q.Volumes:
		return refuse("VolumeLimitExceeded", "You have exceeded your maximum number of volumes, which is %d.",
			q.Volumes)
	case q.StorageGiB > 0 && storage > q.StorageGiB:
		return refuse("VolumeLimitExceeded", "You have exceeded your maximum %s storage limit of %d GiB in this region. Please contact AWS Support to request an Elastic Block Store service limit increase.", v.Type, q.StorageGiB)
	case q.IOPS > 0 && v.provisioned() && iops > q.IOPS:
		return refuse("MaxIOPSLimitExceeded", "You have exceeded your maximum provisioned IOPS of %d.", q.IOPS)
	}
	return nil
}

func (v *volume) provisioned() bool { return v.Type == "io1" || v.Type == "io2" }

func (w *World) checkRoom(v *volume) *Error {
	full := anyOf(w.knobs.FullZones, func(z string) bool { return z == v.Zone })
	if full || w.faultHits(NoCapacity, v, "") {
		e := refuse("InsufficientVolumeCapacity", "There is not enough capacity to fulfil your request in the zone %s.",
			v.Zone)
		e.Status = 500
		return e
	}
	return nil
}

// makeVolume sets a planned volume's ID and begins its creation.
func (w *World) makeVolume(v *volume, from DataSource) (*volume, *Error) {
	v.ID, v.Order = w.newID("vol-"), w.order()
	v.State, v.Created = creating, w.now()
	if w.devices != nil {
		if err := w.devices.CreateVolume(v.ID, v.Size, from); err != nil {
			return nil, internal(err)
		}
	}
	w.planFailure(v)
	w.planInitialization(v)
	v.Visible = v.Created.Add(w.knobs.Consistency.Visible.pick(w.random))
	v.TagsVisible = v.Visible.Add(w.knobs.Consistency.Tags.pick(w.random))
	w.Volumes[v.ID] = v
	w.schedule(w.takes(CreateTransition, w.knobs.Times.Create, v, ""), event{Kind: volumeMade, ID: v.ID})
	return v, nil
}

// planFailure decides whether the volume will fail after it was accepted, because its key
// cannot be used.
func (w *World) planFailure(v *volume) {
	unusable := v.Encrypted && anyOf(w.knobs.Encryption.UnusableKeys, func(key string) bool {
		return key == "*" || w.keyARN(key) == v.KMSKey
	})
	switch {
	case w.faultHits(CreateFails, v, ""), unusable && w.knobs.Encryption.FailVisibly:
		v.Doom = failed
	case w.faultHits(CreateVanishes, v, ""), unusable:
		v.Doom = vanishes
	}
}

// vanishes as volume.Doom makes the volume disappear instead of becoming available.
const vanishes = "vanishes"

// planInitialization decides when a restored or copied volume has all its data.
func (w *World) planInitialization(v *volume) {
	if v.SnapshotID == "" && v.SourceID == "" {
		return
	}
	takes := w.knobs.Times.Initialize.pick(w.random)
	if v.Rate > 0 {
		takes = time.Duration(v.Size) * 1024 * time.Second / time.Duration(v.Rate)
	}
	if w.spendRestoreCredit(v) {
		v.FastRestored, takes = true, 0
	}
	v.Initialized = v.Created.Add(takes)
}

func (w *World) finishCreate(v *volume) {
	w.touchVolume(v)
	switch v.Doom {
	case "":
		v.State = available
		v.end(CreateTransition, w.now())
	case failed:
		v.State = failed
		w.burnToken(v)
	default:
		w.forgetVolume(v)
	}
}

// keyARN is the ARN of a key named by ID, ARN, alias or alias ARN. EC2 shows the
// key of an alias, never the alias; in the world each alias has a separate key.
func (w *World) keyARN(key string) string {
	prefix := "arn:aws:kms:" + w.region + ":" + w.account + ":"
	name := key
	if parts := strings.SplitN(key, ":", 6); len(parts) == 6 && parts[0] == "arn" {
		name = parts[5]
		prefix = strings.TrimSuffix(key, name)
	}
	switch {
	case strings.HasPrefix(name, "alias/"):
		return prefix + "key/" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(prefix+name)).String()
	case strings.HasPrefix(name, "key/"):
		return prefix + name
	}
	return prefix + "key/" + name
}

func malformedARN(arn string) bool {
	colons := 0
	for _, c := range arn {
		if c == ':' {
			colons++
		}
	}
	return colons < 5 || arn[:4] != "arn:"
}

func isTrue(b *bool) bool { return b != nil && *b }
