package ec2emu

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Fault is a fault of some calls. A fault of volumes (stuck attachments, failing
// modifications, …) is a world.Fault.
type Fault struct {
	// ID names the fault; AddFault chooses one if it is empty.
	ID string `json:"id"`
	// Kind is one of the Fault… constants.
	Kind string `json:"kind"`
	// Action of the calls; empty means all.
	Action string `json:"action,omitempty"`
	// Resource is a value that some parameter of the call must have, such as
	// the ID of a volume or an instance; empty is any.
	Resource string `json:"resource,omitempty"`
	// Code, Message and Status are the error's: InternalError, 500 when empty.
	// A throttle has RequestLimitExceeded, 503.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	Status  int    `json:"status,omitempty"`
	// Skip is how many matching calls pass first; Count is how many calls it
	// then hits before it is removed, without a bound if 0.
	Skip  int `json:"skip,omitempty"`
	Count int `json:"count,omitempty"`
	// Probability is the share of the calls that it hits; 0 means all.
	Probability float64 `json:"probability,omitempty"`
	// After is the time from its addition to its start, For its duration (0: unlimited).
	After world.Span `json:"after,omitempty"`
	For   world.Span `json:"for,omitempty"`
	// Delay is how long a slow body takes.
	Delay world.Span `json:"delay,omitempty"`

	added time.Time
}

// Kinds of faults.
const (
	// FaultError answers with Code and Status instead of executing.
	FaultError = "error"
	// FaultThrottle refuses as an empty bucket does.
	FaultThrottle = "throttle"
	// FaultDrop closes the connection before executing.
	FaultDrop = "drop"
	// FaultDropReply executes, then closes the connection without an answer.
	FaultDropReply = "drop-reply"
	// FaultSlowBody executes and sends the second half of the answer after Delay.
	FaultSlowBody = "slow-body"
	// FaultGarble executes and answers with something that is not XML, with
	// Status (200 when 0).
	FaultGarble = "garble"
)

func (f Fault) validate() error {
	switch f.Kind {
	case FaultError, FaultThrottle, FaultDrop, FaultDropReply, FaultGarble:
	case FaultSlowBody:
		if f.Delay <= 0 {
			return errors.New("a slow-body fault needs a delay")
		}
	default:
		return fmt.Errorf("fault kind %q: want %s, %s, %s, %s, %s or %s", f.Kind,
			FaultError, FaultThrottle, FaultDrop, FaultDropReply, FaultSlowBody, FaultGarble)
	}
	if _, known := actions()[f.Action]; !known && f.Action != "" {
		return fmt.Errorf("fault for %s: unknown action", f.Action)
	}
	switch {
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("fault probability %v: want 0 to 1", f.Probability)
	case f.Skip < 0 || f.Count < 0 || f.After < 0 || f.For < 0:
		return errors.New("a fault's skip, count, after and for must not be negative")
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("fault status %d: want an HTTP status", f.Status)
	}
	return nil
}

// matches reports whether the fault concerns a call of action with these parameter values.
func (f Fault) matches(action string, now time.Time, values func(string) bool) bool {
	age := now.Sub(f.added)
	return (f.Action == "" || f.Action == action) &&
		(f.Resource == "" || values(f.Resource)) &&
		age >= time.Duration(f.After) &&
		(f.For == 0 || age < time.Duration(f.After+f.For))
}

// failure is the error that a fault answers with.
func (f Fault) failure() (code, message string, status int) {
	code, message, status = f.Code, f.Message, f.Status
	if code == "" {
		code = "InternalError"
	}
	if message == "" {
		message = "An internal error has occurred (fault " + f.ID + ")"
	}
	if status == 0 {
		status = http.StatusInternalServerError
	}
	return code, message, status
}

// faults are the faults in force, in the order in which they were added: the
// first that hits a call decides.
type faults struct {
	mu   sync.Mutex
	list []*Fault
	next int
	dice *dice
}

func (s *faults) add(f Fault, now time.Time) (Fault, error) {
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ID == "" {
		s.next++
		f.ID = "fault-" + strconv.Itoa(s.next)
	}
	f.added = now
	s.list = slices.DeleteFunc(s.list, func(other *Fault) bool { return other.ID == f.ID })
	s.list = append(s.list, &f)
	return f, nil
}

// remove ends a fault, or all if id is empty. It returns how many it ended.
func (s *faults) remove(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.list)
	s.list = slices.DeleteFunc(s.list, func(f *Fault) bool { return id == "" || f.ID == id })
	return before - len(s.list)
}

func (s *faults) all() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Fault, 0, len(s.list))
	for _, f := range s.list {
		all = append(all, *f)
	}
	return all
}

// hit is the fault of a call, or nil. It counts down the one that it returns.
func (s *faults) hit(action string, now time.Time, values func(string) bool) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.list {
		if !f.matches(action, now, values) {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Probability > 0 && !s.dice.chance(f.Probability) {
			continue
		}
		hit := *f
		if f.Count == 1 {
			s.list = slices.Delete(s.list, i, i+1)
		} else if f.Count > 1 {
			f.Count--
		}
		return &hit
	}
	return nil
}
