package host

import (
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
	h.journal.Step(entry)
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
