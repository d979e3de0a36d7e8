// Package live implements a process's health checks.
//
// Liveness fails only if a restart would help: the process makes no progress. It
// does not fail because a driver, a backend or the API server is unavailable.
//
// Readiness names the conditions that the process waits for: the driver, the kubelet's
// registration, the caches, the lease. A standby is ready: it can lead at once.
//
// The liveness of another vendor's driver has a separate page, for the probe of
// that driver's container (see Health.Driver).
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
	// DefaultProbeTimeout is that of livenessprobe.
	DefaultProbeTimeout = 3 * time.Second
	// freshProbe is how long the pages share the result of one Probe.
	freshProbe = 2 * time.Second
	// selfTestWait is how long a page waits for the self-test. It is well below the
	// kubelet's default timeout of a probe, 1 s.
	selfTestWait = 500 * time.Millisecond
	// stuckAfter is the duration of a self-test from which on the process counts as
	// stuck. The test takes locks that are held for microseconds.
	stuckAfter = 30 * time.Second
)

// Vital is a part without which the process makes no progress. Test uses it as the
// work does, for example takes its lock, and returns soon. An error means that the
// process needs a restart.
type Vital struct {
	Name string
	Test func() error
}

// Fact is a part of the readiness page. Describe returns soon. It returns the
// state in words, or an error if the process is not ready because of this part.
type Fact struct {
	Name     string
	Describe func() (words string, err error)
}

// Options of a Health.
type Options struct {
	// Probe calls the driver's Probe; nil for a process without a driver.
	Probe        func(context.Context) error
	ProbeTimeout time.Duration // 0 means 3 s
	Vitals       []Vital
	Facts        []Fact
}

// Health serves the health pages of one process. It checks only on request.
type Health struct {
	options Options
	probe   *check
	self    *check
	testing atomic.Pointer[string] // the vital that the self-test runs now
}

// New prepares the checks.
func New(o Options) *Health {
	if o.ProbeTimeout <= 0 {
		o.ProbeTimeout = DefaultProbeTimeout
	}
	h := &Health{options: o}
	if o.Probe != nil {
		h.probe = &check{run: o.Probe, timeout: o.ProbeTimeout}
	}
	h.self = &check{run: func(context.Context) error { return h.selfTest() }, timeout: stuckAfter}
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

// Live fails if the process cannot make progress. The words are the age of the
// last self-test.
func (h *Health) Live(ctx context.Context) (words string, err error) {
	ctx, cancel := context.WithTimeout(ctx, selfTestWait)
	defer cancel()
	got := h.self.result(ctx, 0)
	switch {
	case got.waiting > stuckAfter:
		return "", fmt.Errorf("the self-test has waited %v for: %s", round(got.waiting), h.at())
	case got.waiting > 0:
		return fmt.Sprintf("the self-test has waited %v for: %s", round(got.waiting), h.at()), nil
	}
	return fmt.Sprintf("self-test %v ago", round(time.Since(got.at))), got.err
}

func (h *Health) at() string {
	if name := h.testing.Load(); name != nil {
		return *name
	}
	return "its beginning"
}

// Driver fails if the driver's Probe fails, reports that the driver is not ready,
// or times out. livenessprobe serves the same at /healthz, for the liveness of the
// driver's container. It does not measure the liveness of this process.
func (h *Health) Driver(ctx context.Context) (words string, err error) {
	if h.probe == nil {
		return "this process has no driver", nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.options.ProbeTimeout)
	defer cancel()
	got := h.probe.result(ctx, freshProbe)
	if got.waiting > 0 {
		return "", fmt.Errorf("the driver has not answered Probe for %v", round(got.waiting))
	}
	return fmt.Sprintf("ready %v ago", round(time.Since(got.at))), got.err
}

// Ready reports the state of all that the process needs, one line each, and
// whether the process is ready.
func (h *Health) Ready(ctx context.Context) (report string, ready bool) {
	var text strings.Builder
	ready = true
	line := func(name, words string, err error) {
		sign := "+"
		if err != nil {
			sign, words, ready = "-", err.Error(), false
		}
		// A driver's message may have several lines.
		fmt.Fprintf(&text, "[%s] %s: %s\n", sign, name, strings.ReplaceAll(words, "\n", " "))
	}
	if h.probe != nil {
		words, err := h.Driver(ctx)
		line("driver", words, err)
	}
	for _, fact := range h.options.Facts {
		words, err := fact.Describe()
		line(fact.Name, words, err)
	}
	return text.String(), ready
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
