package content

import "github.com/holdfast-csi/holdfast/internal/kube/work"

// flow is the flow of a content. Its call is that of its next step, so that a driver that
// hangs when it deletes snapshots still creates some.
func (c *Controller[T]) flow(object T) work.Flow {
	v := c.kind.View(object)
	flow := work.Flow{Namespace: v.User.Namespace}
	if v.Class != nil {
		flow.Class = *v.Class
	}
	switch step := c.Next(v); step {
	case StepCreate, StepPoll:
		flow.Call = string(StepCreate)
	case StepInspect, StepDelete:
		flow.Call = string(step)
	}
	return flow
}
