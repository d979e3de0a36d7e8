package host

import (
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// observe reports a step to the caller's observer and to the journal.
func (h *Host) observe(event volumes.Event) {
	if h.options.Observe != nil {
		h.options.Observe(event)
	}
	h.measureStep(event)
	entry := journal.StepEntry{
		About: event.About, Volume: event.Volume, Driver: event.Driver, Handle: event.Handle,
		Step: string(event.Step), Status: statusOf(event.Status),
		Started: time.Now().Add(-event.Took), Took: event.Took,
		Attempts: event.Attempts, Code: event.Code, Detail: event.Detail,
		Progress: event.Progress,
	}
	if event.Err != nil {
		entry.Error = event.Err.Error()
	}
	h.running.note(entry)
	h.journal.Step(entry)
}

// Progress lists the steps that run and of which the driver says how far they are.
func (h *Host) Progress() []journal.StepEntry { return h.running.list() }

// running has the steps that Progress lists. The zero value is ready to use.
type running struct {
	mu    sync.Mutex
	steps map[string]journal.StepEntry // by volume and step
}

func (r *running) note(entry journal.StepEntry) {
	key := entry.Volume + "\x00" + entry.Step
	r.mu.Lock()
	defer r.mu.Unlock()
	if entry.Status != journal.Started || entry.Progress == nil {
		delete(r.steps, key)
		return
	}
	if r.steps == nil {
		r.steps = map[string]journal.StepEntry{}
	}
	r.steps[key] = entry
}

func (r *running) list() []journal.StepEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]journal.StepEntry, 0, len(r.steps))
	for _, entry := range r.steps {
		all = append(all, entry)
	}
	slices.SortFunc(all, func(a, b journal.StepEntry) int { return a.Started.Compare(b.Started) })
	return all
}

func statusOf(status volumes.Status) journal.Status {
	switch status {
	case volumes.Started:
		return journal.Started
	case volumes.Retrying:
		return journal.Retrying
	case volumes.Done:
		return journal.Done
	}
	return journal.Failed
}
