package change

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/volumetype"
)

// plan has the calls that bring a desired state, with every value checked.
type plan struct {
	input cloud.ModifyInput // its zero fields stay; see modifies
	after volumetype.Spec
	tags  map[string]string // to set
	untag []string          // to remove
}

// modifies reports whether ModifyVolume is needed. A ModifyVolume without a change must
// not be sent, because EC2 counts it as a modification.
func (p plan) modifies() bool {
	return p.input.Size != 0 || p.input.Type != "" || p.input.IOPS != 0 || p.input.Throughput != 0
}

// done reports whether the volume is in the desired state.
func (p plan) done() bool { return !p.modifies() && len(p.tags) == 0 && len(p.untag) == 0 }

// planFor compares a desired state with a volume and checks the result.
func planFor(v cloud.Volume, d Desired) (plan, error) {
	before := volumetype.Spec{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput,
		MultiAttach: v.MultiAttach}.Chosen()
	asked := volumetype.Spec{Type: d.Type, Size: max(d.Size, 0), IOPS: d.IOPS, Throughput: d.Throughput}
	if asked.Size <= before.Size {
		asked.Size = 0 // the volume is large enough
	}
	iops, err := ratio(v, d, before, before.Changed(asked))
	if err != nil {
		return plan{}, err
	}
	if iops != 0 {
		asked.IOPS = iops
	}
	if d.Lenient {
		asked.IOPS = bounded(before, before.Changed(asked), asked.IOPS)
	}
	p := plan{after: before.Changed(asked)}
	if err := before.CheckChange(p.after); err != nil && p.after != before {
		return plan{}, err
	}
	p.input = difference(before, p.after, asked)
	p.input.VolumeID = v.ID
	return p, p.planTags(v, d)
}

// difference is the smallest ModifyInput from before to after.
func difference(before, after, asked volumetype.Spec) cloud.ModifyInput {
	var in cloud.ModifyInput
	other := after.Type != before.Type
	if other {
		in.Type = after.Type
	}
	if after.Size != before.Size {
		in.Size = after.Size
	}
	if asked.IOPS != 0 && (other || after.IOPS != before.IOPS) {
		in.IOPS = after.IOPS
	}
	if asked.Throughput != 0 && (other || after.Throughput != before.Throughput) {
		in.Throughput = after.Throughput
	}
	return in
}

// ratio returns the IOPS that result from the ratio of IOPS to size, or 0 without a
// ratio. A requested ratio must be possible. With a recorded ratio
// (allowAutoIOPSIncreaseOnModify), the IOPS stay within the limits of the type and never
// decrease, so that the ratio cannot make an expansion fail.
func ratio(v cloud.Volume, d Desired, before, after volumetype.Spec) (int32, error) {
	t, err := before.Limits(after.Type)
	if err != nil {
		return 0, err
	}
	if d.IOPSPerGB != 0 {
		return params.Volume{IOPSPerGB: d.IOPSPerGB, Raise: true, Lenient: d.Lenient}.Ratio(t, after.Size)
	}
	keep := v.Tags[tags.KeepRatio] == "true"
	if d.KeepRatio != nil {
		keep = *d.KeepRatio
	}
	perGB, err := strconv.ParseInt(v.Tags[tags.IOPSPerGB], 10, 32)
	if err != nil || !keep || d.IOPS != 0 || perGB <= 0 || after.Size == v.Size || t.IOPSPerGiB == 0 {
		return 0, nil //nolint:nilerr // a tag that is not a number is ignored
	}
	allowed := t.IOPSAt(after.Size)
	iops := min(perGB*int64(after.Size), int64(allowed.Most))
	return max(int32(iops), allowed.Least, after.IOPS), nil
}

// bounded brings requested IOPS within the limits of the volume after the change. It does
// not lower those that the volume has. 0 stays.
func bounded(before, after volumetype.Spec, iops int32) int32 {
	t, err := before.Limits(after.Type)
	if err != nil || iops == 0 || t.IOPSPerGiB == 0 {
		return iops
	}
	allowed := t.IOPSAt(after.Size)
	return min(max(iops, allowed.Least), allowed.Most)
}

// planTags plans the changes of tags: the user's, and those that record a ratio.
func (p *plan) planTags(v cloud.Volume, d Desired) error {
	want := maps.Clone(d.Tags)
	if want == nil {
		want = map[string]string{}
	}
	remove := slices.Clone(d.Untag)
	switch {
	case d.IOPSPerGB != 0:
		want[tags.IOPSPerGB] = strconv.Itoa(int(d.IOPSPerGB))
	case d.IOPS != 0: // they replace the ratio, which would change them when the volume grows
		remove = append(remove, tags.IOPSPerGB)
	}
	if d.KeepRatio != nil {
		want[tags.KeepRatio] = strconv.FormatBool(*d.KeepRatio)
	}
	after := maps.Clone(v.Tags)
	if after == nil {
		after = map[string]string{}
	}
	for _, key := range remove {
		if _, has := after[key]; has {
			p.untag = append(p.untag, key)
			delete(after, key)
		}
	}
	for key, value := range want {
		if had, has := v.Tags[key]; has && had == value {
			continue
		}
		if p.tags == nil {
			p.tags = map[string]string{}
		}
		p.tags[key], after[key] = value, value
	}
	return checkTags(v, after)
}

// maxTags is how many tags a resource can have, without those of AWS.
const maxTags = 50

func checkTags(v cloud.Volume, after map[string]string) error {
	count := 0
	for key := range after {
		if !strings.HasPrefix(key, "aws:") {
			count++
		}
	}
	if count > maxTags && count > len(v.Tags) {
		return fmt.Errorf("%w: volume %s would have %d tags, of which EC2 allows %d; remove some with tagDeletion",
			backend.ErrInvalid, v.ID, count, maxTags)
	}
	return nil
}
