// Package lifecycle decides the next step for volumes and snapshots: from the objects,
// from the recorded intent and from a driver's answer. Its functions are pure. The
// Kubernetes controllers and the host call them, and only observe, execute and record
// themselves, so that both decide alike.
package lifecycle

import (
	"errors"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Creation is a CreateVolume, CreateSnapshot or CreateVolumeGroupSnapshot call
// that failed, with its circumstances.
type Creation struct {
	// Call is CallCreate for volumes, and CallSnapshot for snapshots and groups.
	Call claim.Call
	// Copied reports that the request names a source. Snapshots always do.
	Copied bool
	// Repeated reports that an earlier call with the same request may have had an
	// effect: its answer was lost or left the effect open, or the process that
	// made it ended. Only a caller that knows otherwise may clear it.
	Repeated bool
	// Elsewhere reports, with Repeated, that an earlier call may have gone to another
	// instance of the driver, such as that of another node.
	Elsewhere bool
	// Desired reports that the object for which the call was made still exists and
	// still needs the result.
	Desired bool
	// Movable reports that a node was selected for the volume and that another
	// node could be.
	Movable bool
}

// Outcome is the decision about the intent of a creation that failed.
type Outcome int

const (
	// Retry: the effect is unknown. The intent stays, and the same request is
	// repeated, since only its answer gives certainty.
	Retry Outcome = iota
	// Discard: nothing exists. The intent is removed; a further attempt, if the result is
	// still desired, is a new request.
	Discard
	// RetryLater is Discard for a request that the driver rejects as such: a further
	// attempt needs a long pause or a change of the objects.
	RetryLater
	// Reschedule is Discard if the selected node has no room: another node must be
	// selected.
	Reschedule
	// Quarantine: the effect is unknown, and the driver cannot repeat the request.
	// The intent stays for an administrator who inspects the storage; the same
	// request is repeated rarely.
	Quarantine
)

func (o Outcome) String() string {
	return [...]string{"retry", "discard", "retry later", "reschedule", "quarantine"}[o]
}

// KeepsIntent reports whether something may exist that only the intent names.
func (o Outcome) KeepsIntent() bool { return o == Retry || o == Quarantine }

// AfterFailedCreate classifies an error of a creation.
//
// An error whose code is final for the call (claim.Classify) says that this call
// left nothing behind. It says nothing about an earlier call with the same
// request: a driver that is throttled, lacks permission or finds no room
// usually fails before it searches for what exists. Only an error that rejects the
// request itself speaks for the earlier call too, because the request was the
// same. It does so only if the same instance of the driver answers: an instance that
// serves one node rejects requests for other nodes.
//
// A call that was never sent, because nothing listened on the socket, counts as
// uncertain: its UNAVAILABLE is the code that a driver may return after an effect
// too, and gRPC names the difference only in its text. It costs one repetition.
func AfterFailedCreate(c Creation, failure error) Outcome {
	outcome := claim.Classify(c.Call, failure)
	switch {
	case outcome == claim.OutcomeUncertain:
		return Retry
	case c.Repeated && (c.Elsewhere || !rejectsRequest(failure)):
		if c.unrepeatable(failure) || rejectsRequest(failure) {
			return Quarantine
		}
		return Retry
	case !c.Desired:
		return Discard
	case c.Movable && errors.Is(failure, backend.ErrNoSpace):
		return Reschedule
	case outcome == claim.OutcomeInfeasible:
		return RetryLater
	}
	return Discard
}

// rejectsRequest reports whether an error follows from the request alone, so
// that each call with this request fails with it: INVALID_ARGUMENT,
// OUT_OF_RANGE, UNIMPLEMENTED.
func rejectsRequest(failure error) bool {
	return errors.Is(failure, backend.ErrInvalid) || errors.Is(failure, backend.ErrOutOfRange) ||
		errors.Is(failure, backend.ErrUnsupported)
}

// unrepeatable reports whether a repetition is unlikely to return what an earlier call
// created: its source is gone, or the driver has another object of the name.
func (c Creation) unrepeatable(failure error) bool {
	return errors.Is(failure, backend.ErrExists) ||
		errors.Is(failure, backend.ErrNotFound) && (c.Copied || c.Call == claim.CallSnapshot)
}
