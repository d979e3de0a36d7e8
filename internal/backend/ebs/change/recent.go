package change

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// recentWrites records for a while the writes to volumes, because EC2 may show
// their earlier state for some seconds. Without it, a desired state that only seems
// to be reached would be answered as reached.
type recentWrites struct {
	lasts time.Duration

	mu      sync.Mutex
	volumes map[string]recentWrite
}

// recentWrite has the writes to one volume.
type recentWrite struct {
	until time.Time
	set   map[string]string // tags
	unset map[string]bool
	// modified has the fields that a modification set.
	modified cloud.ModifyInput
	// began is when the last modification began.
	began time.Time
}

func newRecentWrites(lasts time.Duration) *recentWrites {
	return &recentWrites{lasts: lasts, volumes: map[string]recentWrite{}}
}

// note adds a write and removes expired ones.
func (w *recentWrites) note(id string, change func(*recentWrite)) {
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

func (k *recentWrite) tag(tags map[string]string) {
	for key, value := range tags {
		k.set[key] = value
		delete(k.unset, key)
	}
}

func (k *recentWrite) untag(keys []string) {
	for _, key := range keys {
		k.unset[key] = true
		delete(k.set, key)
	}
}

// unknown is a value that no tag has: it differs from every desired value, so that the tag
// is written again.
const unknown = "\x00"

// uncertain records tags of which it is unknown whether they were written.
func (k *recentWrite) uncertain(keys []string) {
	for _, key := range keys {
		k.set[key] = unknown
		delete(k.unset, key)
	}
}

// modify records a modification that has taken effect: what was requested or, if EC2
// shows it, the whole target state.
func (k *recentWrite) modify(in cloud.ModifyInput, m cloud.Modification) {
	k.began = m.Start
	if m.TargetSize != 0 && m.TargetType != "" {
		in = cloud.ModifyInput{Size: m.TargetSize, Type: m.TargetType, IOPS: m.TargetIOPS, Throughput: m.TargetThroughput}
	}
	k.modified = in
}

// began is when the last modification began whose end this process observed; zero if
// that is long ago.
func (w *recentWrites) began(id string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.volumes[id]; ok && time.Now().Before(known.until) {
		return known.began
	}
	return time.Time{}
}

// correct returns a volume that EC2 shows with the recent writes applied.
func (w *recentWrites) correct(v cloud.Volume) cloud.Volume {
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
