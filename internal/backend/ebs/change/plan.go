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

// plan is what has to be done for a wish, every value checked.
type plan struct {
	input cloud.ModifyInput // its zero fields stay; see modifies
	after volumetype.Spec
	tags  map[string]string // to set
	untag []string          // to remove
}

// modifies reports whether EC2 has to be asked for a modification. One that changes
// nothing must not be asked for: it would count.
func (p plan) modifies() bool {
	return p.input.Size != 0 || p.input.Type != "" || p.input.IOPS != 0 || p.input.Throughput != 0
}

// done reports whether the volume is as wished.
func (p plan) done() bool { return !p.modifies() && len(p.tags) == 0 && len(p.untag) == 0 }

// planFor compares a wish with a volume and checks the result. Nothing has been
// done when it fails.
func planFor(v cloud.Volume, w Wish) (plan, error) {
	before := volumetype.Spec{Type: v.Type, Size: v.Size, IOPS: v.IOPS, Throughput: v.Throughput, MultiAttach: v.MultiAttach}.Chosen()
	asked := volumetype.Spec{Type: w.Type, Size: max(w.Size, 0), IOPS: w.IOPS, Throughput: w.Throughput}
	if asked.Size <= before.Size {
		asked.Size = 0 // it is that large already
	}
	iops, err := ratio(v, w, before.Changed(asked))
	if err != nil {
		return plan{}, err
	}
	if iops != 0 {
		asked.IOPS = iops
	}
	p := plan{after: before.Changed(asked)}
	if err := before.CheckChange(p.after); err != nil && p.after != before {
		return plan{}, err
	}
	p.input = difference(before, p.after, asked)
	p.input.VolumeID = v.ID
	return p, p.planTags(v, w)
}

// difference is the least that EC2 has to be told.
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

// ratio is the IOPS that a ratio of IOPS to size comes to; 0 when there is none
// to follow. One that is wished for must be possible. One that only follows the
// size (allowAutoIOPSIncreaseOnModify) stays within what the type allows, and
// never takes IOPS away: a volume must not fail to grow for it.
func ratio(v cloud.Volume, w Wish, after volumetype.Spec) (int32, error) {
	if w.IOPSPerGB != 0 {
		spec, err := params.Volume{Type: after.Type, IOPSPerGB: w.IOPSPerGB, Raise: true}.Spec(after.Size)
		return spec.IOPS, err
	}
	keep := v.Tags[tags.KeepRatio] == "true"
	if w.KeepRatio != nil {
		keep = *w.KeepRatio
	}
	perGB, err := strconv.ParseInt(v.Tags[tags.IOPSPerGB], 10, 32)
	if err != nil || !keep || w.IOPS != 0 || perGB <= 0 || after.Size == v.Size {
		return 0, nil //nolint:nilerr // a tag that is no number is nobody's wish
	}
	t, err := volumetype.Lookup(after.Type)
	if err != nil || t.IOPSPerGiB == 0 {
		return 0, err
	}
	allowed := t.IOPSAt(after.Size)
	iops := min(perGB*int64(after.Size), int64(allowed.Most))
	return max(int32(iops), allowed.Least, after.IOPS), nil
}

// planTags finds out which tags change: the user's, and those that keep a ratio.
func (p *plan) planTags(v cloud.Volume, w Wish) error {
	want := maps.Clone(w.Tags)
	if want == nil {
		want = map[string]string{}
	}
	remove := slices.Clone(w.Untag)
	switch {
	case w.IOPSPerGB != 0:
		want[tags.IOPSPerGB] = strconv.Itoa(int(w.IOPSPerGB))
	case w.IOPS != 0: // the later wish replaces the ratio, or growing would undo it
		remove = append(remove, tags.IOPSPerGB)
	}
	if w.KeepRatio != nil {
		want[tags.KeepRatio] = strconv.FormatBool(*w.KeepRatio)
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

// maxTags is how many tags EC2 lets a resource have, AWS's own not counted.
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
