package journal

import (
	"time"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

// Event is one thing that happened, or the same thing several times.
type Event struct {
	About   Ref       `json:"about"`
	Warning bool      `json:"warning,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Status is the progress of a step.
type Status string

// A step starts, may be repeated, and is done or has failed.
const (
	Started  Status = "started"
	Retrying Status = "retrying"
	Done     Status = "done"
	Failed   Status = "failed"
)

// StepEntry is one step of a volume, such as its creation or its mounting.
type StepEntry struct {
	// About are the objects that the step is for.
	About []Ref `json:"about"`
	// Volume names it in messages.
	Volume string `json:"volume,omitempty"`
	Driver string `json:"driver,omitempty"`
	Handle string `json:"handle,omitempty"`
	Step   string `json:"step"`
	Status Status `json:"status"`
	// Started is when the step began, and Took how long that is ago or was.
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took"`
	// Attempts are the calls that have ended, with those of the attempts before.
	Attempts int `json:"attempts,omitempty"`
	// Code is the failure's, as gRPC names it.
	Code   string `json:"code,omitempty"`
	Error  string `json:"error,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Progress is how far a step is that takes long, if the driver says that.
	Progress *progress.State `json:"progress,omitempty"`
	// Count is the number of times that the step ended like this; Started and Took are
	// of the last time, First is when the first of them, or the first attempt, began.
	Count int       `json:"count"`
	First time.Time `json:"first"`
}

// Entry is one line of the journal: an Event or a Step.
type Entry struct {
	// Sequence grows with each entry; an entry that is counted again gets a new one.
	Sequence uint64 `json:"sequence"`
	// ID stays while an entry is counted.
	ID    string     `json:"id"`
	Event *Event     `json:"event,omitempty"`
	Step  *StepEntry `json:"step,omitempty"`
}

// Story has the journal's entries of one object, in the order of time.
type Story struct {
	Events []Event     `json:"events"`
	Steps  []StepEntry `json:"steps"`
}

// refs are the objects that an entry is about.
func (e Entry) refs() []Ref {
	if e.Event != nil {
		return []Ref{e.Event.About}
	}
	return e.Step.About
}

// last is when the entry was true for the last time.
func (e Entry) last() time.Time {
	if e.Event != nil {
		return e.Event.Last
	}
	return e.Step.Started.Add(e.Step.Took)
}
