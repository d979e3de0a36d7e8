// Package live is the truth behind a process's health pages.
//
// Liveness asks one thing: can this process still make progress? It fails when
// a restart would help, and for no other reason; never because a driver, a
// backend or the API server is away.
//
// Readiness says in words what the process waits for: the driver, the kubelet's
// registration, the caches, the lease. A standby is ready: it would work at once.
//
// The liveness of somebody else's driver is a third question, with a page of
// its own for that driver's container (see Health.Driver).
package live

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// DefaultProbeTimeout is livenessprobe's.
	DefaultProbeTimeout = 3 * time.Second
	// freshProbe lets the pages share one question to the driver.
	freshProbe = 2 * time.Second
	// selfTestWait is how long a page waits for the self-test, well below the
	// second that a kubelet gives a probe by default.
	selfTestWait = 500 * time.Millisecond
	// stuckAfter is when a self-test that gives no answer means a process that
	// makes no progress: it takes locks that are held for microseconds.
	stuckAfter = 30 * time.Second
)

// Vital is something without which the process makes no progress. Test takes
// what the work takes, such as a lock, and returns soon; an error says that a
// restart is needed.
type Vital struct {
	Name string
	Test func() error
}

// Fact is something that readiness shows. Tell returns soon, with the state in
// words, or an error while the process is not ready because of it.
type Fact struct {
	Name string
	Tell func() (words string, err error)
}

// Options of a Health.
type Options struct {
	// Probe asks the driver whether it is ready; nil for a process without one.
	Probe        func(context.Context) error
	ProbeTimeout time.Duration // 0 means 3 s
	Vitals       []Vital
	Facts        []Fact
}

// Health answers the pages of one process. It asks only when it is asked.
type Health struct {
	options Options
	probe   *flight
	self    *flight
	testing atomic.Pointer[string] // the vital that the self-test is at
}

// New prepares the answers.
func New(o Options) *Health {
	if o.ProbeTimeout <= 0 {
		o.ProbeTimeout = DefaultProbeTimeout
	}
	h := &Health{options: o}
	if o.Probe != nil {
		h.probe = &flight{question: o.Probe, timeout: o.ProbeTimeout}
	}
	h.self = &flight{question: func(context.Context) error { return h.selfTest() }, timeout: stuckAfter}
	return h
}

func (h *Health) selfTest() error {
	var failed []error
	for _, vital := range h.options.Vitals {
		h.testing.Store(&vital.Name)
		if err := vital.Test(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", vital.Name, err))
		}
	}
	return errors.Join(failed...)
}

// Live fails when the process cannot make progress. The words tell of the last
// self-test and its age.
func (h *Health) Live(ctx context.Context) (words string, err error) {
	ctx, cancel := context.WithTimeout(ctx, selfTestWait)
	defer cancel()
	got := h.self.ask(ctx, 0)
	switch {
	case got.asked > stuckAfter:
		return "", fmt.Errorf("the self-test has waited %v for: %s", round(got.asked), h.at())
	case got.asked > 0:
		return fmt.Sprintf("the self-test has waited %v for: %s", round(got.asked), h.at()), nil
	}
	return fmt.Sprintf("self-test %v ago", round(time.Since(got.at))), got.err
}

func (h *Health) at() string {
	if name := h.testing.Load(); name != nil {
		return *name
	}
	return "its beginning"
}

// Driver fails when the driver's Probe fails, says that it is not ready, or
// gives no answer in time: what livenessprobe serves at /healthz, for the
// liveness of the driver's own container. It is no measure for this process.
func (h *Health) Driver(ctx context.Context) (words string, err error) {
	if h.probe == nil {
		return "this process has no driver", nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.options.ProbeTimeout)
	defer cancel()
	got := h.probe.ask(ctx, freshProbe)
	if got.asked > 0 {
		return "", fmt.Errorf("the driver has not answered Probe for %v", round(got.asked))
	}
	return fmt.Sprintf("ready %v ago", round(time.Since(got.at))), got.err
}

// Ready says in words all that the process needs for its work, one line each,
// and whether it is there.
func (h *Health) Ready(ctx context.Context) (report string, ready bool) {
	var text strings.Builder
	ready = true
	line := func(name, words string, err error) {
		sign := "+"
		if err != nil {
			sign, words, ready = "-", err.Error(), false
		}
		// A driver's message may have lines of its own.
		fmt.Fprintf(&text, "[%s] %s: %s\n", sign, name, strings.ReplaceAll(words, "\n", " "))
	}
	if h.probe != nil {
		words, err := h.Driver(ctx)
		line("driver", words, err)
	}
	for _, fact := range h.options.Facts {
		words, err := fact.Tell()
		line(fact.Name, words, err)
	}
	return text.String(), ready
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
