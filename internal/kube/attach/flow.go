package attach

import "github.com/holdfast-csi/holdfast/internal/kube/work"

// flow is the flow of an attachment. Each of the two queues makes one kind of call.
func (c *Controller) flow(key string) work.Flow {
	va, found := c.attachments.Get(key)
	if !found {
		return work.Flow{}
	}
	flow := c.volumeFlow(volumeName(va))
	flow.Node = va.Spec.NodeName
	return flow
}

// volumeFlow is the flow of a PersistentVolume. Its finalizer needs no call of the driver.
func (c *Controller) volumeFlow(name string) work.Flow {
	pv, found := c.volumes.Get(name)
	if !found {
		return work.Flow{}
	}
	flow := work.Flow{Class: pv.Spec.StorageClassName}
	if pv.Spec.ClaimRef != nil {
		flow.Namespace = pv.Spec.ClaimRef.Namespace
	}
	return flow
}
