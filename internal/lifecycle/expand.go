package lifecycle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Expands reports where a driver expands volumes: EXPAND_VOLUME of its controller and of
// its node service. Node is used only without Controller.
type Expands struct{ Controller, Node bool }

// ExpandAction is the next action for the size of a claim.
type ExpandAction int

const (
	// ExpandNothing: the claim has the requested size, or the node must act.
	ExpandNothing ExpandAction = iota
	// ExpandUnable: the driver does not expand volumes.
	ExpandUnable
	// ExpandWait: the driver called the size infeasible; the request is retried later.
	ExpandWait
	// ExpandOnNode: the node does all of it. The size is recorded without a call.
	ExpandOnNode
	// ExpandCall: call ControllerExpandVolume.
	ExpandCall
)

func (a ExpandAction) String() string {
	return [...]string{"nothing", "unable", "wait", "on node", "call"}[a]
}

// ExpandStep is an action with its arguments.
type ExpandStep struct {
	Action ExpandAction
	// Target is the size to reach.
	Target resource.Quantity
	// Repeats reports that the driver called Target infeasible before.
	Repeats bool
	// After is the pause of ExpandWait.
	After time.Duration
}

// NextExpand decides about the size of a claim whose volume exists. Its intent is
// written into the claim (claim.BeginResize) before the call.
func NextExpand(view claim.Resize, driver Expands, history History, now time.Time) ExpandStep {
	switch {
	case !view.Asked():
		return ExpandStep{}
	case !driver.Controller && !driver.Node:
		return ExpandStep{Action: ExpandUnable}
	}
	view.NodeOnly, view.Failed = !driver.Controller, history.Final
	target, ok := view.Target()
	if !ok {
		return ExpandStep{}
	}
	step := ExpandStep{Action: ExpandCall, Target: target, Repeats: view.Repeats(target)}
	switch rest := history.Rest(target.String(), now); {
	case step.Repeats && rest > 0:
		step.Action, step.After = ExpandWait, rest
	case !driver.Controller:
		step.Action = ExpandOnNode
	}
	return step
}

// UnableToExpand returns why a volume is not expanded, for an event.
func UnableToExpand(driver string) string {
	return fmt.Sprintf("driver %s cannot expand volumes: it has EXPAND_VOLUME neither in its controller nor in its "+
		"node service", driver)
}
