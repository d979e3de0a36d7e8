package provision

import (
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/claim"
)

// verdict is what follows from a failed CreateVolume.
type verdict int

const (
	// verdictAgain: the volume may exist; the same request again, until the
	// driver gives a final answer.
	verdictAgain verdict = iota
	// verdictDrop: nothing exists; the next attempt asks anew.
	verdictDrop
	// verdictSlow: as verdictDrop, and nothing gets better by itself.
	verdictSlow
	// verdictReschedule: as verdictDrop, and another node is to be chosen.
	verdictReschedule
	// verdictSuspect: the driver cannot repeat what it may have done; a person
	// has to look.
	verdictSuspect
)

func (v verdict) String() string {
	return [...]string{"again", "drop", "slow", "reschedule", "suspect"}[v]
}

// judge reads an error of CreateVolume. untried says that the driver was not
// called for this record before, so that a refusal is all there is to know.
func judge(err error, request *csi.CreateVolumeRequest, node string, untried bool) verdict {
	outcome := claim.Classify(claim.CallCreate, err)
	lost := errors.Is(err, backend.ErrExists) || errors.Is(err, backend.ErrNotFound) && request.GetVolumeContentSource() != nil
	switch {
	case outcome == claim.OutcomeUncertain:
		return verdictAgain
	case lost && !untried:
		// An earlier call may have made it, and its source is gone now; or it
		// exists and the driver thinks that it is somebody else's.
		return verdictSuspect
	case errors.Is(err, backend.ErrNoSpace) && request.GetAccessibilityRequirements() != nil && node != "":
		return verdictReschedule
	case outcome == claim.OutcomeInfeasible:
		return verdictSlow
	}
	return verdictDrop
}
