package lifecycle

import (
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

const (
	// InfeasiblePause is the time until an infeasible request is repeated, unless the
	// desired value changes (external-resizer's slow set).
	InfeasiblePause = 5 * time.Minute
	// inUsePause is how long an expansion that the driver rejected as "in use" waits while
	// the volume seems to be used. Knowledge about users may be outdated, such as a
	// condition that no controller maintains any more.
	inUsePause = time.Hour
)

// History is the knowledge from the last attempt of this process to expand or to modify a
// volume that the claim's status lacks. With the zero value, as after a restart, an
// operation in progress may still run.
type History struct {
	// Final reports that the driver's last answer was final: the attempt has ended.
	Final bool
	// InUse is when the driver answered that the volume is in use; zero unless that
	// was its last answer.
	InUse time.Time
	// Rejected is the size or class that the driver called infeasible, and RetryAt the
	// time at which the request for it is repeated.
	Rejected string
	RetryAt  time.Time
}

// Rest is the time until a size or class may be tried again; 0 is now.
func (h History) Rest(desired string, now time.Time) time.Duration {
	if h.Rejected != desired {
		return 0
	}
	return max(0, h.RetryAt.Sub(now))
}

// NeedsIdle reports whether the driver expands the volume only while it is not in use, so
// that it is not called as long as the volume has a user.
func (h History) NeedsIdle(now time.Time) bool {
	return !h.InUse.IsZero() && now.Sub(h.InUse) <= inUsePause
}

// InUseError returns the failure of an expansion that waits until a volume is idle.
func InUseError(handle, user string) error {
	return fmt.Errorf("the driver expands volume %s only while it is not in use, and it is used by %s", handle, user)
}

// Failure is the result of a failed attempt to expand or to modify a volume.
type Failure struct {
	// Outcome is for the claim's status (claim.FailResize, claim.FailModify).
	Outcome claim.Outcome
	// History replaces the one from before the attempt.
	History History
	// Pause is the time until the next attempt, which is then no repetition after a
	// failure; 0 means the ordinary back-off.
	Pause time.Duration
}

// AfterFailedExpand classifies an error of ControllerExpandVolume.
// A size that is called infeasible for the first time is repeated once after the
// ordinary back-off: the driver may have been mended.
func AfterFailedExpand(step ExpandStep, failure error, now time.Time, pause time.Duration) Failure {
	f := Failure{Outcome: claim.Classify(claim.CallExpand, failure)}
	f.History.Final = f.Outcome != claim.OutcomeUncertain
	switch {
	case f.Outcome == claim.OutcomeInUse:
		f.History.InUse = now
	case f.Outcome == claim.OutcomeInfeasible && step.Repeats:
		f.reject(step.Target.String(), now, pause)
	}
	return f
}

// AfterFailedModify classifies an error of ControllerModifyVolume
// for a class. A class that is not desired any more does not delay the one that is.
func AfterFailedModify(class, desired string, failure error, now time.Time, pause time.Duration) Failure {
	f := Failure{Outcome: claim.Classify(claim.CallModify, failure)}
	f.History.Final = f.Outcome != claim.OutcomeUncertain
	if f.Outcome == claim.OutcomeInfeasible && class == desired {
		f.reject(class, now, pause)
	}
	return f
}

func (f *Failure) reject(what string, now time.Time, pause time.Duration) {
	f.History.Rejected, f.History.RetryAt, f.Pause = what, now.Add(pause), pause
}

// NodeFailure is the result of a failed NodeExpandVolume.
type NodeFailure struct {
	// Outcome is for the claim's status (claim.FailNodeResize).
	Outcome claim.Outcome
	// Parked reports that the node is not called for this size before the volume is used
	// again.
	Parked bool
	// Repeat reports that a further attempt may succeed. If not, the pod gets its
	// volume as it is.
	Repeat bool
}

// AfterFailedNodeExpand classifies an error of NodeExpandVolume as the kubelet does.
func AfterFailedNodeExpand(failure error) NodeFailure {
	outcome := claim.Classify(claim.CallExpand, failure)
	return NodeFailure{
		Outcome: outcome, Parked: outcome == claim.OutcomeInUse,
		Repeat: outcome != claim.OutcomeInUse && outcome != claim.OutcomeInfeasible,
	}
}

// Describe returns what an error means for a call, in a word for people.
func Describe(call claim.Call, failure error) string { return claim.Classify(call, failure).String() }

// MayRun reports whether the operation of a failed call may still run or have had
// its effect, so that the same call is repeated.
func MayRun(call claim.Call, failure error) bool {
	return claim.Classify(call, failure) == claim.OutcomeUncertain
}
