package resize

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// The kinds of operations in the metrics.
const (
	resizeOperation = metrics.KindResize
	modifyOperation = metrics.KindModify
)

// showOperations exports the unfinished operations of the queues.
func (c *Controller) showOperations() {
	if c.modifying == nil {
		c.env.ShowOperations(c.queue, func(key string) []cluster.Operation {
			return append(c.resizes(key), c.modifications(key)...)
		}, resizeOperation, modifyOperation)
		return
	}
	c.env.ShowOperations(c.queue, c.resizes, resizeOperation)
	c.env.ShowOperations(c.modifying, c.modifications, modifyOperation)
}

// resizes returns the expansion of a claim's volume that the controller has to do.
func (c *Controller) resizes(key string) []cluster.Operation {
	s, found := c.subject(key)
	if !found {
		return nil
	}
	view := claim.ResizeOf(s.claim, s.volume)
	if _, ok := view.Target(); !ok || !view.Asked() {
		return nil
	}
	return []cluster.Operation{{Kind: resizeOperation, Since: sinceCondition(s.claim, corev1.PersistentVolumeClaimResizing)}}
}

// modifications returns the change of the attributes of a claim's volume.
func (c *Controller) modifications(key string) []cluster.Operation {
	s, found := c.subject(key)
	if !found || claim.ModifyOf(s.claim).Step() == claim.ModifyNothing {
		return nil
	}
	return []cluster.Operation{{Kind: modifyOperation, Since: sinceCondition(s.claim, corev1.PersistentVolumeClaimVolumeModifyingVolume)}}
}

// sinceCondition returns since when a condition is true; zero if it is not.
func sinceCondition(pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) time.Time {
	if condition := claim.Condition(pvc, kind); condition != nil {
		return condition.LastTransitionTime.Time
	}
	return time.Time{}
}
