package attach

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// flow is the flow of an attachment. Each of the two queues makes one kind of call.
func (c *Controller) flow(va *storagev1.VolumeAttachment) work.Flow {
	flow := cluster.FlowOf(c.volumes, cluster.VolumeFlow)(volumeName(va))
	flow.Node = va.Spec.NodeName
	return flow
}
