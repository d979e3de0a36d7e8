// Package failpoint names the instants between two steps of an operation, so
// that a test can stop the process, or fail the step, at each of them. Production has a
// nil *Set: each point then costs a nil check.
//
// Terms are "NAME=ACTION[@N]", separated by semicolons: at the N-th passing
// (the first, if not given) of point NAME, do ACTION:
//
//	kill        end the process with SIGKILL: no deferred call runs, as in a crash
//	kill-once   the same, unless the trace shows that the point was passed before:
//	            a program that is started again and again dies once at each point
//	error       return ErrInjected
//	slow        wait 100 ms, from then on at each passing, as on a slow disk
//
// NAME may be "*", for all points without a term.
//
// With HOLDFAST_FAILPOINT_TRACE=FILE every passed name is appended to FILE, which
// is how a sweep learns what there is to stop at.
package failpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The environment variables that FromEnvironment reads.
const (
	TermsVariable = "HOLDFAST_FAILPOINTS"
	TraceVariable = "HOLDFAST_FAILPOINT_TRACE"
)

// ErrInjected is the error of a point with the action "error".
var ErrInjected = errors.New("injected failure")

type action int

const (
	actionKill action = iota
	actionKillOnce
	actionError
	actionSlow
)

// slowness is how long the action "slow" waits.
const slowness = 100 * time.Millisecond

type term struct {
	action action
	at     int
}

// Set has the terms of one process.
type Set struct {
	mu     sync.Mutex
	terms  map[string]term
	passed map[string]int
	trace  *os.File
	traced map[string]bool // what earlier processes passed
	decide func(name, subject string) error
}

// Deciding returns a Set that calls decide at each point, with its name and its subject
// ("" if the point has none), and returns its error: a simulation decides there which
// goroutine continues, and which process ends.
func Deciding(decide func(name, subject string) error) *Set { return &Set{decide: decide} }

// Parse reads terms; an empty text gives a nil Set.
func Parse(text string) (*Set, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	set := &Set{terms: map[string]term{}, passed: map[string]int{}}
	for part := range strings.SplitSeq(text, ";") {
		name, spec, found := strings.Cut(strings.TrimSpace(part), "=")
		if !found {
			return nil, fmt.Errorf("failpoint %q: want NAME=ACTION[@N]", part)
		}
		parsed, err := parseTerm(spec)
		if err != nil {
			return nil, fmt.Errorf("failpoint %q: %w", part, err)
		}
		set.terms[name] = parsed
	}
	return set, nil
}

func parseTerm(spec string) (term, error) {
	verb, count, counted := strings.Cut(spec, "@")
	at := 1
	if counted {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return term{}, fmt.Errorf("count %q is not a whole number above 0", count)
		}
		at = n
	}
	switch verb {
	case "kill":
		return term{actionKill, at}, nil
	case "kill-once":
		return term{actionKillOnce, at}, nil
	case "error":
		return term{actionError, at}, nil
	case "slow":
		return term{actionSlow, at}, nil
	}
	return term{}, fmt.Errorf("action %q is none of kill, kill-once, error, slow", verb)
}

// FromEnvironment builds the Set of this process: nil unless one of the two
// variables is set.
func FromEnvironment() (*Set, error) {
	set, err := Parse(os.Getenv(TermsVariable))
	if err != nil {
		return nil, err
	}
	name := os.Getenv(TraceVariable)
	if name == "" {
		return set, nil
	}
	if set == nil {
		set = &Set{terms: map[string]term{}, passed: map[string]int{}}
	}
	if err := set.openTrace(name); err != nil {
		return nil, fmt.Errorf("failpoint trace: %w", err)
	}
	return set, nil
}

func (s *Set) openTrace(name string) error {
	earlier, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.traced = map[string]bool{}
	for line := range strings.Lines(string(earlier)) {
		s.traced[strings.TrimSuffix(line, "\n")] = true
	}
	s.trace, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return err
}

// Hit passes the point. Call it between two effects, and return its error as
// if the next step had failed.
func (s *Set) Hit(name string) error { return s.HitFor(name, "") }

// HitFor is Hit for a point that several goroutines pass at the same time, each for
// another subject, such as the key of an object. Terms name the point alone.
func (s *Set) HitFor(name, subject string) error {
	if s == nil {
		return nil
	}
	if s.decide != nil {
		return s.decide(name, subject)
	}
	slow, err := s.pass(name)
	if slow {
		time.Sleep(slowness)
	}
	return err
}

func (s *Set) pass(name string) (slow bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed[name]++
	if s.trace != nil {
		if _, err := fmt.Fprintln(s.trace, name); err != nil {
			return false, fmt.Errorf("failpoint trace: %w", err)
		}
	}
	t, set := s.terms[name]
	if !set {
		t, set = s.terms["*"]
	}
	if set && t.action == actionSlow {
		return s.passed[name] >= t.at, nil
	}
	if !set || s.passed[name] != t.at || t.action == actionKillOnce && s.traced[name] {
		return false, nil
	}
	if t.action != actionError {
		killSelf()
	}
	return false, fmt.Errorf("failpoint %s: %w", name, ErrInjected)
}
