package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// mostSteps bounds the entries of the journal that a mirror has, as the journal itself
// is bounded.
const mostSteps = 10_000

// steps are the steps of a host's journal by the objects that they are for.
type steps struct {
	entries map[string]journal.Entry // by identity
	of      map[about]map[string]bool
}

func newSteps() steps {
	return steps{entries: map[string]journal.Entry{}, of: map[about]map[string]bool{}}
}

// add adds an entry, or replaces the one that it continues.
func (s steps) add(entry journal.Entry) {
	s.remove(entry.ID)
	s.remove(entry.Ends())
	s.entries[entry.ID] = entry
	for _, ref := range entry.Step.About {
		of := about{ref.Kind, ref.Key}
		if s.of[of] == nil {
			s.of[of] = map[string]bool{}
		}
		s.of[of][entry.ID] = true
	}
	if len(s.entries) > mostSteps+mostSteps/10 {
		s.trim()
	}
}

func (s steps) remove(id string) {
	known, ok := s.entries[id]
	if !ok {
		return
	}
	delete(s.entries, id)
	for _, ref := range known.Step.About {
		of := about{ref.Kind, ref.Key}
		if delete(s.of[of], id); len(s.of[of]) == 0 {
			delete(s.of, of)
		}
	}
}

// trim removes the oldest entries.
func (s steps) trim() {
	all := make([]journal.Entry, 0, len(s.entries))
	for _, entry := range s.entries {
		all = append(all, entry)
	}
	slices.SortFunc(all, func(a, b journal.Entry) int { return cmp.Compare(a.Sequence, b.Sequence) })
	for _, entry := range all[:len(all)-mostSteps] {
		s.remove(entry.ID)
	}
}

// about returns the steps for an object, in the order of their beginnings.
func (s steps) about(kind, key, uid string) []journal.StepEntry {
	var found []journal.StepEntry
	for id := range s.of[about{kind, key}] {
		entry := s.entries[id]
		if slices.ContainsFunc(entry.Step.About, func(ref journal.Ref) bool {
			return ref.Kind == kind && ref.Key == key && (ref.UID == "" || uid == "" || ref.UID == uid)
		}) {
			found = append(found, *entry.Step)
		}
	}
	sortSteps(found)
	return found
}

// running returns the steps that have not ended.
func (s steps) running() []journal.StepEntry {
	var found []journal.StepEntry
	for _, entry := range s.entries {
		if status := entry.Step.Status; status == journal.Started || status == journal.Retrying {
			found = append(found, *entry.Step)
		}
	}
	sortSteps(found)
	return found
}

func sortSteps(found []journal.StepEntry) {
	slices.SortStableFunc(found, func(a, b journal.StepEntry) int {
		return cmp.Or(begun(a).Compare(begun(b)), a.Started.Compare(b.Started), cmp.Compare(a.Step, b.Step))
	})
}

// begun is when the first of the equal ends of a step began.
func begun(step journal.StepEntry) time.Time {
	if step.First.IsZero() {
		return step.Started
	}
	return step.First
}

// stepsOf returns the steps for an object; uid "" is for objects of that name.
func (m *Mirror) stepsOf(kind, key, uid string) []journal.StepEntry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.steps.about(kind, key, uid)
}

// runningSteps returns the steps of all objects that have not ended.
func (m *Mirror) runningSteps() []journal.StepEntry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.steps.running()
}
