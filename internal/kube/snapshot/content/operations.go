package content

import "github.com/holdfast-csi/holdfast/internal/kube/cluster"

// operations returns the operation of a content: the creation of its snapshot, until that is
// ready, or the deletion.
func (c *Controller[T]) operations(object T) []cluster.Operation {
	v := c.kind.View(object)
	if !c.forDriver(v) || c.owner.Of(object, v.Volumes) == Elsewhere {
		return nil
	}
	switch c.Next(v) {
	case StepCreate, StepPoll, StepInspect:
		return []cluster.Operation{{Kind: c.Operation, Since: v.Meta.CreationTimestamp.Time}}
	case StepDelete:
		return []cluster.Operation{{Kind: c.Deletion, Since: v.Meta.DeletionTimestamp.Time}}
	}
	return nil
}
