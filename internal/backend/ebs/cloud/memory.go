package cloud

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// memory has the facts that follow from the recent calls and answers of this client. EC2
// is eventually consistent: for some seconds a describe may lack a new volume, or may
// show an older state than an earlier describe. So a describe is corrected if it
// contradicts a newer fact:
//
//   - a resource that this client created within the lag exists, and one that it deleted
//     does not;
//   - an answer to AttachVolume, DetachVolume or ModifyVolume is newer than a describe
//     that still shows the earlier state;
//   - a volume does not shrink; a creation, an attachment with a given start and a
//     modification with a given start do not return to an earlier state.
//
// Every fact expires when the lag has passed since it became known. A read does not
// extend that. After it, EC2's answers are used unchanged.
type memory struct {
	lag time.Duration

	mu        sync.Mutex // guards the facts
	volumes   concurrency.Expiring[string, *volumeFacts]
	snapshots concurrency.Expiring[string, *snapshotFacts]
}

// volumeFacts are the facts about one volume. A fact that is older than the lag is
// ignored.
type volumeFacts struct {
	made     time.Time // when this client created it
	answer   Volume    // of the creation
	deleted  time.Time
	created  time.Time // when it was first seen created
	size     int32
	sizeAt   time.Time
	attached map[string]*attachmentFact // by instance
	change   Modification
	changeAt time.Time
}

// attachmentFact is the newest known state of an attachment.
type attachmentFact struct {
	Attachment
	at     time.Time
	absent int       // consecutive describes that did not show it
	began  time.Time // when AttachVolume was answered; zero if this client did not call it
}

type snapshotFacts struct {
	made, deleted time.Time
	answer        Snapshot
	ended         time.Time // when it was seen completed
}

func newMemory(lag time.Duration) *memory {
	return &memory{lag: lag}
}

// valid reports whether a fact that became known at a time is not older than the lag.
func (m *memory) valid(at time.Time) bool {
	return !at.IsZero() && time.Since(at) < m.lag
}

// volume finds or makes the facts of a volume, and extends their lifetime.
func (m *memory) volume(id string) *volumeFacts {
	f, ok := m.volumes.Get(id)
	if !ok {
		f = &volumeFacts{attached: map[string]*attachmentFact{}}
	}
	m.volumes.Set(id, f, m.lag)
	return f
}

func (m *memory) snapshot(id string) *snapshotFacts {
	f, ok := m.snapshots.Get(id)
	if !ok {
		f = new(snapshotFacts)
	}
	m.snapshots.Set(id, f, m.lag)
	return f
}

// madeVolume notes the answer to a creation.
func (m *memory) madeVolume(v Volume) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.volume(v.ID)
	if f.made.IsZero() {
		f.made, f.answer = time.Now(), v
	}
}

func (m *memory) deletedVolume(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volume(id).deleted = time.Now()
}

// answered notes the answer to AttachVolume (begins) or DetachVolume.
func (m *memory) answered(a Attachment, begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.VolumeID == "" || a.InstanceID == "" {
		return
	}
	facts := m.volume(a.VolumeID)
	fact := &attachmentFact{Attachment: a, at: time.Now()}
	if old := facts.attached[a.InstanceID]; begins {
		fact.began = fact.at
	} else if old != nil {
		fact.began = old.began
	}
	facts.attached[a.InstanceID] = fact
}

func (m *memory) changed(change Modification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if change.VolumeID == "" {
		return
	}
	f := m.volume(change.VolumeID)
	f.change, f.changeAt = change, time.Now()
}

func (m *memory) madeSnapshot(s Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.snapshot(s.ID)
	f.made, f.answer = time.Now(), s
}

func (m *memory) deletedSnapshot(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.snapshot(id).deleted = time.Now()
}

// mayAppear reports whether a resource that EC2 does not show may still appear: this
// client created it within the lag and did not delete it.
func (m *memory) mayAppear(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f, ok := m.volumes.Get(id); ok {
		return m.valid(f.made) && f.deleted.IsZero()
	}
	f, ok := m.snapshots.Get(id)
	return ok && m.valid(f.made) && f.deleted.IsZero()
}

// recentVolumes are the answers to this client's own latest creations under the names.
func (m *memory) recentVolumes(names []string) []Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Volume
	for _, f := range m.volumes.All() {
		if slices.Contains(names, f.answer.Tags[NameTag]) && m.valid(f.made) && f.deleted.IsZero() {
			out = append(out, f.answer.clone())
		}
	}
	return out
}

// recentSnapshots are the same for snapshots.
func (m *memory) recentSnapshots(names []string) []Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Snapshot
	for _, f := range m.snapshots.All() {
		if slices.Contains(names, f.answer.Tags[SnapshotNameTag]) && m.valid(f.made) && f.deleted.IsZero() {
			s := f.answer
			s.Tags = maps.Clone(s.Tags)
			out = append(out, s)
		}
	}
	return out
}

// seenVolume returns a described volume, corrected by newer facts, and records the new
// facts that it shows.
func (m *memory) seenVolume(v Volume) Volume {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.volumes.Get(v.ID)
	if !ok {
		return v
	}
	if f.size > v.Size && m.valid(f.sizeAt) {
		v.Size = f.size
	} else if v.Size > f.size {
		f.size, f.sizeAt = v.Size, time.Now()
		m.volume(v.ID)
	}
	m.seenAttachments(f, &v)
	switch {
	case m.valid(f.deleted) && v.State != VolumeDeleted:
		v.State = VolumeDeleting
	case v.State == VolumeCreating && m.valid(f.created):
		v.State = VolumeAvailable
	case v.State == VolumeAvailable || v.State == VolumeInUse:
		if f.created.IsZero() {
			f.created = time.Now()
			m.volume(v.ID)
		}
	}
	if v.State == VolumeAvailable && len(v.Attachments) > 0 {
		v.State = VolumeInUse
	}
	return v
}

// seenChange is the newest modification of a volume: the described or the recorded one.
func (m *memory) seenChange(id string, seen Modification, found bool) (Modification, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.volumes.Get(id)
	if !ok || !m.valid(f.changeAt) {
		return seen, found
	}
	known := f.change
	if inSeconds(seen.Start, known.Start) {
		seen.Start = known.Start
	}
	if !found || seen.Start.Before(known.Start) ||
		seen.Start.Equal(known.Start) && changeRank(seen.State) < changeRank(known.State) {
		return known, true
	}
	if changeRank(seen.State) > changeRank(known.State) || seen.Start.After(known.Start) {
		f.changeAt = time.Now()
		m.volume(id)
	}
	f.change = seen
	return seen, true
}

// inSeconds reports whether t is the time of without its fraction of a second.
func inSeconds(t, of time.Time) bool {
	return t.Nanosecond() == 0 && t.Equal(of.Truncate(time.Second))
}

func changeRank(state string) int {
	switch state {
	case Modifying:
		return 0
	case Optimizing:
		return 1
	}
	return 2
}

// seenSnapshot is a described snapshot; false if this client has just deleted it.
func (m *memory) seenSnapshot(s Snapshot) (Snapshot, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, ok := m.snapshots.Get(s.ID)
	if !ok {
		return s, true
	}
	if m.valid(f.deleted) {
		return s, false
	}
	switch {
	case s.State == SnapshotPending && m.valid(f.ended):
		s.State, s.Progress = SnapshotCompleted, "100%"
	case s.State == SnapshotCompleted && f.ended.IsZero():
		f.ended = time.Now()
		m.snapshot(s.ID)
	}
	return s, true
}

// clone is a copy of a volume that shares no memory with it.
func (v Volume) clone() Volume {
	v.Tags = maps.Clone(v.Tags)
	v.Attachments = slices.Clone(v.Attachments)
	return v
}
