// Package backendtest is the conformance suite of the seam: every rule that
// package backend states, run against any backend. A new backend's test is a
// constructor and one call:
//
//	func TestConformance(t *testing.T) {
//		backendtest.Run(t, func(t *testing.T) backendtest.Subject { … })
//	}
//
// The suite reaches the controller through package guard, as every caller does.
package backendtest

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

// Subject is a fresh, empty backend.
type Subject struct {
	Controller backend.Controller
	// Node is nil where the machine cannot see the volumes.
	Node backend.Node
	// Reopen ends the backend as a process would end and opens its state again; nil for
	// a backend without state. It may be called again, and ends whichever instance is
	// open then.
	Reopen func(t *testing.T) Subject
	// Parameters and Mutable are acceptable values for a volume of the tests, and
	// OtherMutable one that differs from Mutable. Any may be nil.
	Parameters, Mutable, OtherMutable map[string]string
}

// Run runs every rule, each against a new subject.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	run(t, open, func(t *testing.T, check func(t *testing.T)) { check(t) })
}

// RunVirtual is Run in virtual time (package synctest), for a backend that
// waits for timers and does no input or output itself. What the subject
// starts must end with the test's cleanups.
func RunVirtual(t *testing.T, open func(t *testing.T) Subject) {
	t.Helper()
	run(t, open, synctest.Test)
}

func run(t *testing.T, open func(t *testing.T) Subject, in func(t *testing.T, check func(t *testing.T))) {
	t.Helper()
	for _, group := range []struct {
		name  string
		rules []rule
	}{
		{"volumes", volumeRules()},
		{"snapshots", snapshotRules()},
		{"groups", groupRules()},
		{"changes", changeRules()},
		{"devices", deviceRules()},
		{"inline", inlineRules()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, r := range group.rules {
				t.Run(r.name, func(t *testing.T) {
					in(t, func(t *testing.T) { r.check(newBench(t, open(t))) })
				})
			}
		})
	}
}

// rule is one sentence of the contract and how it is checked. A rule about an
// optional interface that the subject does not implement passes.
type rule struct {
	name  string
	check func(b *bench)
}

// bench has the subject and the helpers of a rule.
type bench struct {
	*testing.T
	subject Subject
	guard   *guard.Guard
	traits  backend.Traits
}

func newBench(t *testing.T, s Subject) *bench {
	return &bench{T: t, subject: s, guard: guard.New(s.Controller), traits: s.Controller.Traits()}
}

// reopened ends the backend and opens its state again.
func (b *bench) reopened() *bench {
	b.Helper()
	if b.subject.Reopen == nil {
		return b
	}
	return newBench(b.T, b.subject.Reopen(b.T))
}
