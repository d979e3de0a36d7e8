package supervise

import (
	"maps"
	"slices"
	"time"
)

// State is the state of a unit.
type State string

// The states of a unit.
const (
	StateRunning  State = "Running"
	StateWaiting  State = "Waiting" // for its next start
	StateStopping State = "Stopping"
	StateRefused  State = "Refused" // its file
)

// Status describes one unit.
type Status struct {
	Name      string    `json:"name,omitempty"`
	File      string    `json:"file,omitempty"`
	State     State     `json:"state"`
	Since     time.Time `json:"since"`
	PID       int       `json:"pid,omitempty"`
	Restarts  int       `json:"restarts,omitempty"`
	LastError string    `json:"lastError,omitempty"`
	// Log has the last lines that the driver wrote.
	Log []string `json:"log,omitempty"`
}

// List describes every unit, and the files that are refused.
func (s *Supervisor) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Status
	for _, name := range slices.Sorted(maps.Keys(s.runners)) {
		status := s.runners[name].snapshot()
		if err := s.broken[status.File]; err != nil {
			status.LastError = "its file is refused: " + err.Error()
		}
		status.Log = s.logs.tail(name)
		list = append(list, status)
	}
	for _, file := range slices.Sorted(maps.Keys(s.broken)) {
		if s.files[file] == "" {
			list = append(list, Status{File: file, State: StateRefused, LastError: s.broken[file].Error()})
		}
	}
	return list
}

func (r *runner) snapshot() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.status
	status.Name, status.File = r.name, r.file
	return status
}

// say sets the state. A nil failure keeps the last one, so that the operator can read it.
func (r *runner) say(state State, failure error) {
	pid := 0
	if len(r.instances) > 0 {
		pid = r.instances[len(r.instances)-1].PID
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status.State != state || r.status.PID != pid {
		r.status.Since = time.Now()
	}
	r.status.State, r.status.PID = state, pid
	if failure != nil {
		r.status.LastError = failure.Error()
	}
}
