package lifecycle

import (
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// ModifyStep is the next step for the attributes of a claim's volume.
type ModifyStep struct {
	Action claim.ModifyStep
	// Class is the VolumeAttributesClass of ModifyContinue and ModifyStart.
	Class string
	// After is the pause of ModifyWait.
	After time.Duration
}

// NextModify decides about the attributes of a claim's volume. Its intent is
// written into the claim (claim.BeginModify) before the call.
func NextModify(view claim.Modify, history History, now time.Time) ModifyStep {
	rest := history.Rest(view.Desired, now)
	view.Final, view.Slow = history.Final, rest > 0
	step := ModifyStep{Action: view.Step()}
	switch step.Action {
	case claim.ModifyWait:
		step.After = rest
	case claim.ModifyContinue:
		step.Class = view.Target
	case claim.ModifyStart:
		step.Class = view.Desired
	}
	return step
}

// UnableToModify returns why a volume is not modified, for an event.
func UnableToModify(driver string) string {
	return fmt.Sprintf("driver %s cannot modify volumes: its controller has no MODIFY_VOLUME", driver)
}

// RejectedClass returns the failure for a class that is not tried, since it is invalid for
// the volume.
func RejectedClass(class string, now time.Time, pause time.Duration) Failure {
	f := Failure{Outcome: claim.OutcomeInfeasible, History: History{Final: true}}
	f.reject(class, now, pause)
	return f
}

// ForeignClass returns a message if a VolumeAttributesClass is for another driver than the
// volume's, else "".
func ForeignClass(class *storagev1.VolumeAttributesClass, driver string) string {
	if class.DriverName == driver {
		return ""
	}
	return fmt.Sprintf("VolumeAttributesClass %q is for driver %s, and the volume is of driver %s; choose a class of "+
		"this driver",
		class.Name, class.DriverName, driver)
}
