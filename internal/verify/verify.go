// Package verify tests assumptions about a service or a machine that only emulators and
// documents have confirmed so far. The packages that know the subject make the checks:
// backend/ebs/verify those of EC2, csiproxy/verify those of Windows. This package runs
// them, records what they make and removes it, and writes the report. It knows neither
// subject.
package verify

import (
	"context"
	"fmt"
	"time"
)

// Assumption is one statement about the subject that Holdfast relies on.
type Assumption struct {
	// ID names the assumption in reports and on its page, such as ec2-token-repeat.
	ID string `json:"id"`
	// Statement is one sentence that holds or does not.
	Statement string `json:"statement"`
	// Source is the document that says so, or "not documented".
	Source string `json:"source"`
	// Otherwise is what Holdfast does wrong if the statement does not hold.
	Otherwise string `json:"otherwise"`
}

// Outcome is what a check found.
type Outcome string

// The outcomes. Untested has a reason: a missing flag, right or resource, or an
// interruption. It says nothing about the assumption.
const (
	Holds    Outcome = "holds"
	Differs  Outcome = "differs"
	Untested Outcome = "not tested"
)

// Result is the outcome of a check and what it saw.
type Result struct {
	Outcome Outcome
	// Seen is the observation, such as EC2's code and message, or a time.
	Seen string
}

// Held reports that an assumption holds.
func Held(format string, arguments ...any) Result {
	return Result{Holds, fmt.Sprintf(format, arguments...)}
}

// Differed reports that an assumption does not hold.
func Differed(format string, arguments ...any) Result {
	return Result{Differs, fmt.Sprintf(format, arguments...)}
}

// Skipped reports that an assumption could not be tested.
func Skipped(format string, arguments ...any) Result {
	return Result{Untested, fmt.Sprintf(format, arguments...)}
}

// Check tests one assumption.
type Check struct {
	Assumption
	Run func(context.Context) Result
}

// Finding is the result of a check.
type Finding struct {
	Assumption
	Outcome Outcome `json:"outcome"`
	Seen    string  `json:"seen"`
	Seconds float64 `json:"seconds"`
}

// Run executes the checks in their order and passes each finding on. After the context's
// end the remaining assumptions are not tested; a check that was under way is not either,
// since it may have failed because of that end.
func Run(ctx context.Context, checks []Check, each func(Finding)) {
	for _, check := range checks {
		began := time.Now()
		result := Skipped("interrupted")
		if ctx.Err() == nil {
			if result = check.Run(ctx); ctx.Err() != nil {
				result = Skipped("interrupted")
			}
		}
		each(Finding{check.Assumption, result.Outcome, result.Seen, time.Since(began).Seconds()})
	}
}
