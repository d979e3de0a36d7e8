package change

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// written remembers for a while what was written to volumes, since EC2 may show
// for some seconds how they were before: a wish that only seems to be true would
// else be answered so.
type written struct {
	lasts time.Duration

	mu      sync.Mutex
	volumes map[string]writing
}

// writing is what was written to one volume.
type writing struct {
	until time.Time
	set   map[string]string // tags
	unset map[string]bool
	// modified has the fields that a modification set.
	modified cloud.ModifyInput
	// began is when the last modification did.
	began time.Time
}

func newWritten(lasts time.Duration) *written {
	return &written{lasts: lasts, volumes: map[string]writing{}}
}

// note adds what was written, and forgets what is too long ago.
func (w *written) note(id string, change func(*writing)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for other, known := range w.volumes {
		if !now.Before(known.until) {
			delete(w.volumes, other)
		}
	}
	known := w.volumes[id]
	known.until = now.Add(w.lasts)
	known.set, known.unset = maps.Clone(known.set), maps.Clone(known.unset)
	if known.set == nil {
		known.set, known.unset = map[string]string{}, map[string]bool{}
	}
	change(&known)
	w.volumes[id] = known
}

func (k *writing) tag(tags map[string]string) {
	for key, value := range tags {
		k.set[key] = value
		delete(k.unset, key)
	}
}

func (k *writing) untag(keys []string) {
	for _, key := range keys {
		k.unset[key] = true
		delete(k.set, key)
	}
}

// unknown is a value that no tag has: it differs from every wish, so that the tag
// is written again.
const unknown = "\x00"

// doubt notes tags of which nobody knows whether they were written.
func (k *writing) doubt(keys []string) {
	for _, key := range keys {
		k.set[key] = unknown
		delete(k.unset, key)
	}
}

// modify notes a modification that has taken effect: what was asked for, or,
// where EC2 tells, what the volume is by it as a whole.
func (k *writing) modify(in cloud.ModifyInput, m cloud.Modification) {
	k.began = m.Start
	if m.TargetSize != 0 && m.TargetType != "" {
		in = cloud.ModifyInput{Size: m.TargetSize, Type: m.TargetType, IOPS: m.TargetIOPS, Throughput: m.TargetThroughput}
	}
	k.modified = in
}

// began is when the last modification of a volume did that this process saw end;
// zero when that is long ago.
func (w *written) began(id string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.volumes[id]; ok && time.Now().Before(known.until) {
		return known.began
	}
	return time.Time{}
}

// over gives a volume as EC2 shows it with what was written since.
func (w *written) over(v cloud.Volume) cloud.Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	known, ok := w.volumes[v.ID]
	if !ok || !time.Now().Before(known.until) {
		return v
	}
	v.Tags = maps.Clone(v.Tags)
	if v.Tags == nil {
		v.Tags = map[string]string{}
	}
	maps.Copy(v.Tags, known.set)
	maps.DeleteFunc(v.Tags, func(key, _ string) bool { return known.unset[key] })
	in := known.modified
	v.Size = max(v.Size, in.Size)
	if in.Type != "" {
		v.Type = in.Type
	}
	if in.IOPS != 0 {
		v.IOPS = in.IOPS
	}
	if in.Throughput != 0 {
		v.Throughput = in.Throughput
	}
	return v
}
