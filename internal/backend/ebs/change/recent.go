package change

import (
	"maps"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// recentWrite has the recent writes to a volume, because EC2 may show its earlier state
// for some seconds. Without it, a desired state that only seems to be reached would be
// answered as reached.
type recentWrite struct {
	tags map[string]*string // nil: removed
	// modified has the targets of the last modification whose end this process observed.
	modified cloud.Modification
}

// noteWrite adds a write to a volume.
func (c *Changer) noteWrite(id string, change func(*recentWrite)) {
	c.recent.Update(id, c.options.Lag, func(k recentWrite, _ bool) recentWrite {
		if k.tags = maps.Clone(k.tags); k.tags == nil {
			k.tags = map[string]*string{}
		}
		change(&k)
		return k
	})
}

// noteTags records which tags a call wrote: nil for those that it removed. If the
// outcome is unknown, they get a value that no tag has: it differs from every desired
// value, so that the tags are written again.
func (c *Changer) noteTags(id string, err error, written map[string]*string) {
	if err != nil && !cloud.Uncertain(err) {
		return
	}
	unknown := "\x00"
	c.noteWrite(id, func(k *recentWrite) {
		for key, value := range written {
			if err != nil {
				value = &unknown
			}
			k.tags[key] = value
		}
	})
}

// noteModified records a modification that has taken effect: its whole target state, or
// the requested fields if EC2 does not show the target state.
func (c *Changer) noteModified(id string, in cloud.ModifyInput, m cloud.Modification) {
	if m.TargetSize == 0 || m.TargetType == "" {
		m.TargetSize, m.TargetType, m.TargetIOPS, m.TargetThroughput = in.Size, in.Type, in.IOPS, in.Throughput
	}
	c.noteWrite(id, func(k *recentWrite) { k.modified = m })
}

// began is when the last modification began whose end this process observed; zero if
// that is long ago.
func (c *Changer) began(id string) time.Time {
	known, _ := c.recent.Get(id)
	return known.modified.Start
}

// correct returns a volume that EC2 shows with the recent writes applied.
func (c *Changer) correct(v cloud.Volume) cloud.Volume {
	known, ok := c.recent.Get(v.ID)
	if !ok {
		return v
	}
	if v.Tags = maps.Clone(v.Tags); v.Tags == nil {
		v.Tags = map[string]string{}
	}
	for key, value := range known.tags {
		if value == nil {
			delete(v.Tags, key)
		} else {
			v.Tags[key] = *value
		}
	}
	return withTargets(v, known.modified)
}
