// Package failpoint names the instants between two steps of an operation, so
// that a test can stop the process, or fail the step, at each of them. A nil
// *Set is what runs in production: every point is passed at the price of a nil
// check.
//
// Terms are "NAME=ACTION[@N]", separated by semicolons: at the N-th passing
// (the first, if not given) of point NAME, do ACTION:
//
//	kill    end the process with SIGKILL: no deferred call runs, as in a crash
//	error   return ErrInjected
//
// With HOLDFAST_FAILPOINT_TRACE=FILE every passed name is appended to FILE, which
// is how a sweep learns what there is to stop at.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// The environment variables that FromEnvironment reads.
const (
	TermsVariable = "HOLDFAST_FAILPOINTS"
	TraceVariable = "HOLDFAST_FAILPOINT_TRACE"
)

// ErrInjected is what a point with the action "error" returns.
var ErrInjected = errors.New("injected failure")

type action int

const (
	actionKill action = iota
	actionError
)

type term struct {
	action action
	at     int
}

// Set holds the terms of one process.
type Set struct {
	mu     sync.Mutex
	terms  map[string]term
	passed map[string]int
	trace  *os.File
}

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
	case "error":
		return term{actionError, at}, nil
	}
	return term{}, fmt.Errorf("action %q is none of kill, error", verb)
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
	set.trace, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("failpoint trace: %w", err)
	}
	return set, nil
}

// Hit passes the point. Call it between two effects, and return its error as
// if the next step had failed.
func (s *Set) Hit(name string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed[name]++
	if s.trace != nil {
		if _, err := fmt.Fprintln(s.trace, name); err != nil {
			return fmt.Errorf("failpoint trace: %w", err)
		}
	}
	t, set := s.terms[name]
	if !set || s.passed[name] != t.at {
		return nil
	}
	if t.action == actionKill {
		killSelf()
	}
	return fmt.Errorf("failpoint %s: %w", name, ErrInjected)
}
