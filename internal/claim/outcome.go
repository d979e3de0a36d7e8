package claim

import (
	"context"
	"errors"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Call groups the RPCs whose errors mean the same.
type Call int

// The groups of the sidecars' error table. CallExpand is both of the controller
// and of the node; CallModify is ControllerModifyVolume.
const (
	CallNode Call = iota
	CallCreate
	CallAttach
	CallExpand
	CallModify
	CallSnapshot
)

// Outcome is the meaning of a driver's error for the next step.
type Outcome int

const (
	// OutcomeUncertain: the operation may have happened, or may still run; only
	// the same call again, or its opposite, gives certainty.
	OutcomeUncertain Outcome = iota
	// OutcomeFinal: the driver says nothing of it remains.
	OutcomeFinal
	// OutcomeInfeasible: final, and no repetition helps until the request changes.
	OutcomeInfeasible
	// OutcomeInUse: final, and worth repeating when the volume is idle.
	OutcomeInUse
)

func (o Outcome) String() string {
	return [...]string{"uncertain", "final", "infeasible", "in use"}[o]
}

// ErrDriverFailed is the class of a driver's errors for which package backend has no
// sentinel error (INTERNAL, UNKNOWN, PERMISSION_DENIED and the like).
var ErrDriverFailed = errors.New("the driver failed")

// Classify says what an error means after a call. Errors of csi/client wrap the
// sentinels of package backend, a context's error or ErrDriverFailed; anything
// else did not come from the driver, so that its outcome is unknown.
func Classify(call Call, err error) Outcome {
	switch {
	case isAny(err, context.Canceled, context.DeadlineExceeded, backend.ErrUnavailable, backend.ErrBusy, backend.ErrStaleToken):
		return OutcomeUncertain
	case errors.Is(err, backend.ErrNoSpace):
		if call == CallCreate {
			return OutcomeFinal // here it means: no room, and nothing was made
		}
		return OutcomeUncertain
	case errors.Is(err, backend.ErrInvalid):
		if call == CallCreate || call == CallExpand || call == CallModify {
			return OutcomeInfeasible
		}
		return OutcomeFinal
	case isAny(err, backend.ErrOutOfRange, backend.ErrNotFound):
		if call == CallExpand {
			return OutcomeInfeasible
		}
		return OutcomeFinal
	case isAny(err, backend.ErrPrecondition, backend.ErrInUse):
		if call == CallExpand {
			return OutcomeInUse
		}
		return OutcomeFinal
	case isAny(err, backend.ErrExists, backend.ErrUnsupported, backend.ErrDataLoss, ErrDriverFailed):
		return OutcomeFinal
	}
	return OutcomeUncertain
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
