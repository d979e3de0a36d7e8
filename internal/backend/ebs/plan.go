package ebs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// plan is a creation request whose values were all checked.
type plan struct {
	name     string
	desired  params.Volume
	spec     volumetype.Spec
	source   backend.Source
	location location
	tags     map[string]string
	context  map[string]string
}

// plan checks a creation request and chooses the values that it does not set. It makes no
// call that changes anything.
func (c *Controller) plan(ctx context.Context, spec backend.VolumeSpec) (plan, error) {
	desired, shape, err := c.read(spec)
	if err != nil {
		return plan{}, err
	}
	c.warn(ctx, spec.Name, desired, shape)
	if len(desired.Untag) > 0 {
		return plan{}, fmt.Errorf("%w: tagDeletion: a new volume has no tags to remove; leave it out",
			backend.ErrInvalid)
	}
	if err := shape.Check(); err != nil {
		return plan{}, err
	}
	if err := desired.Format.Check(spec.Capabilities, filesystems()[0]); err != nil {
		return plan{}, err
	}
	p := plan{name: spec.Name, desired: desired, spec: shape, source: spec.Source, context: desired.Context()}
	if p.tags, err = c.tags.Volume(spec.Name, ownTags(spec, desired), desired.Tags, spec.Metadata); err != nil {
		return plan{}, err
	}
	if spec.Source.VolumeID != "" {
		p.location, err = c.locationOfClone(ctx, spec, desired)
	} else {
		p.location, err = c.chooseLocation(ctx, spec.Topology)
	}
	return p, err
}

// read parses the parameters, size and sharing of a creation.
func (c *Controller) read(spec backend.VolumeSpec) (params.Volume, volumetype.Spec, error) {
	desired, err := params.ParseVolume(spec.Parameters, spec.MutableParameters, c.options.Reading)
	if err != nil {
		return desired, volumetype.Spec{}, err
	}
	size, err := inGiB(spec.Size)
	if err != nil {
		return desired, volumetype.Spec{}, err
	}
	shape, err := desired.Spec(size)
	if err != nil {
		return desired, shape, err
	}
	shape.MultiAttach, err = sharing(spec.Capabilities)
	return desired, shape, err
}

// warn reports the values of a class that a lenient reading changed, for a volume of this
// shape.
func (c *Controller) warn(ctx context.Context, volume string, desired params.Volume, shape volumetype.Spec) {
	notes := desired.Notes
	if asked := desired.AskedIOPS(shape.Size); asked > int64(shape.IOPS) {
		notes = append(notes, fmt.Sprintf("%d IOPS are read as %d, which a volume of type %s and %d GiB can have",
			asked, shape.IOPS, shape.Type, shape.Size))
	}
	for _, note := range notes {
		c.log.Warn("a class has a value that --strict-parameters refuses", "volume", volume, "value", note)
		backend.Warn(ctx, note)
	}
}

func inGiB(size int64) (int32, error) {
	n := (size + gib - 1) / gib
	if n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("%w: size %d bytes: no volume can have that size", backend.ErrOutOfRange, size)
	}
	return int32(n), nil
}

// sharing reports whether the uses need EBS Multi-Attach. Several writers are possible
// for raw block only: a second writer destroys ext4, xfs and btrfs.
func sharing(uses []backend.Capability) (bool, error) {
	shared := false
	for _, use := range uses {
		switch use.Mode {
		case backend.MultiNodeMultiWriter:
			if !use.Block {
				return false, fmt.Errorf("%w: access_mode %s is possible for raw block volumes only: a second writer destroys a filesystem; use volumeMode Block or %s",
					backend.ErrInvalid, use.Mode, backend.MultiNodeReaderOnly)
			}
			shared = true
		case backend.MultiNodeReaderOnly:
			shared = true
		}
	}
	return shared, nil
}

// ownTags are the tags that record the request.
func ownTags(spec backend.VolumeSpec, desired params.Volume) map[string]string {
	own := map[string]string{tags.Request: fingerprint(spec)}
	if desired.IOPSPerGB > 0 {
		own[tags.IOPSPerGB] = strconv.Itoa(int(desired.IOPSPerGB))
	}
	if desired.KeepRatio {
		own[tags.KeepRatio] = "true"
	}
	if context := desired.Context(); len(context) > 0 {
		own[tags.Context] = joinContext(context)
	}
	return own
}

// fingerprint distinguishes requests for one name. It excludes size and zone, which
// are compared with the existing volume, and the metadata of the caller.
func fingerprint(spec backend.VolumeSpec) string {
	shared, _ := sharing(spec.Capabilities)
	// JSON objects have their keys in order.
	text, _ := json.Marshal(struct { //nolint:errchkjson // strings and booleans always can be
		Parameters, Mutable map[string]string
		Source              backend.Source
		Shared              bool
	}{meaningful(spec.Parameters), meaningful(spec.MutableParameters), spec.Source, shared})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// meaningful omits parameters that are accepted and ignored. A nil map and an empty one
// are the same.
func meaningful(given map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range given {
		if !params.Ignored(key) {
			kept[key] = value
		}
	}
	return kept
}

// joinContext formats a volume context for a tag. Its keys and values contain neither
// commas nor equals signs.
func joinContext(context map[string]string) string {
	var pairs []string
	for key, value := range context {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// splitContext parses the output of joinContext, and ignores other text.
func splitContext(text string) map[string]string {
	context := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			context[key] = value
		}
	}
	return context
}

// locationOfClone is the source's zone, because a copy cannot be made in another one (EC2
// API, CopyVolumes). ErrNoSpace if the request does not allow that zone.
func (c *Controller) locationOfClone(
	ctx context.Context, spec backend.VolumeSpec, desired params.Volume,
) (location, error) {
	source, err := c.cloud.Volume(ctx, spec.Source.VolumeID)
	if err != nil {
		return location{}, fmt.Errorf("source volume: %w", err)
	}
	if source.Encrypted && desired.Encrypted != nil && !*desired.Encrypted {
		return location{}, fmt.Errorf("%w: encrypted is false, but volume %s is encrypted and so is its copy; leave it out",
			backend.ErrInvalid, source.ID)
	}
	at := locationOfVolume(source)
	ok, err := reachable(at, spec.Topology)
	if err == nil && !ok {
		err = fmt.Errorf("%w: a copy of volume %s can only be in its zone %s, which is not one of the requisite zones",
			backend.ErrNoSpace, source.ID, at.zone)
	}
	return at, err
}

// request asks EC2 for the volume under a token.
func (c *Controller) request(ctx context.Context, p plan, token string) (cloud.Volume, error) {
	in := cloud.CreateVolumeInput{
		ClientToken: token, Zone: p.location.zone, OutpostARN: p.location.outpostARN,
		Type: p.spec.Type, Size: p.spec.Size, IOPS: p.spec.IOPS, Throughput: p.spec.Throughput,
		KMSKeyID: p.desired.KMSKeyID, SnapshotID: p.source.SnapshotID, SourceVolumeID: p.source.VolumeID,
		MultiAttach: p.spec.MultiAttach, Tags: p.tags,
	}
	if yes := encrypts(p.desired); yes {
		in.Encrypted = &yes
	}
	if in.Zone == "" {
		in.ZoneID = p.location.zoneID
	}
	if in.SnapshotID != "" {
		in.InitializationRate = p.desired.InitializationRate
	}
	return c.cloud.CreateVolume(ctx, in)
}
