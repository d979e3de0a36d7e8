package attach

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// enqueueAll queues every object when Run begins. Before that the handlers below do
// nothing, since a standby must not collect the work of the process with the lease.
func (c *Controller) enqueueAll() {
	for _, va := range c.attachments.List() {
		c.enqueue(va)
	}
	for _, pv := range c.volumes.List() {
		c.enqueueVolume(pv)
	}
}

// enqueue adds an attachment to the queue that serves it.
func (c *Controller) enqueue(va *storagev1.VolumeAttachment) {
	if !c.running.Load() || !c.owns(va) {
		return
	}
	if va.DeletionTimestamp != nil {
		c.detaching.Add(va.Name)
		return
	}
	c.attaching.Add(va.Name)
}

func (c *Controller) enqueueVolume(pv *corev1.PersistentVolume) {
	if c.running.Load() && c.finished(pv) {
		c.protecting.Add(pv.Name)
	}
}

func (c *Controller) attachmentChanged(before, after *storagev1.VolumeAttachment) {
	switch {
	case after == nil:
		c.attachmentDeleted(before)
	case before == nil:
		c.enqueue(after)
	case before.UID != after.UID: // the watch has missed the deletion
		c.attachmentDeleted(before)
		c.enqueue(after)
	case c.needsSync(before, after):
		if before.DeletionTimestamp == nil && after.DeletionTimestamp != nil {
			c.attaching.Forget(after.Name) // a deletion must not wait for the pause after a failure
		}
		c.enqueue(after)
	}
}

// attachmentDeleted queues the volume and its attachments to other nodes, which may
// have waited for this deletion: a driver that refused them while the volume was
// attached here is called again at once, not after a pause of minutes. A publication that was
// begun for the attachment is undone.
func (c *Controller) attachmentDeleted(va *storagev1.VolumeAttachment) {
	c.forced.set(va.UID, false)
	c.released.set(va.UID, false)
	c.attaching.Forget(va.Name)
	c.detaching.Forget(va.Name)
	if _, ok := c.begun.of(va.Name); ok && c.running.Load() {
		c.attaching.Add(va.Name)
	}
	if pv, found := c.volumes.Get(volumeName(va)); found {
		c.enqueueVolume(pv)
		c.wake(c.attachments.By(cluster.AttachmentByVolume(), pv.Name))
	}
}

// volumeChanged wakes attachments that wait for a volume to appear or to be migrated to
// the driver, and queues volumes that are being deleted.
func (c *Controller) volumeChanged(before, after *corev1.PersistentVolume) {
	if after == nil || !c.running.Load() {
		return
	}
	c.enqueueVolume(after)
	if before == nil || before.Spec.CSI == nil && after.Spec.CSI != nil {
		c.wake(c.attachments.By(cluster.AttachmentByVolume(), after.Name))
	}
}

// nodeChanged wakes attachments that wait for the driver to register on a node,
// without the rest of their pause.
func (c *Controller) nodeChanged(before, after *storagev1.CSINode) {
	if after == nil || !c.running.Load() {
		return
	}
	if id := nodeID(after, c.env.Driver); id != "" && (before == nil || nodeID(before, c.env.Driver) != id) {
		c.wake(c.attachments.By(cluster.AttachmentByNode(), after.Name))
	}
}

func (c *Controller) wake(attachments []*storagev1.VolumeAttachment) {
	for _, va := range attachments {
		if c.running.Load() && va.DeletionTimestamp == nil && !va.Status.Attached && c.owns(va) {
			c.attaching.Forget(va.Name)
			c.attaching.Add(va.Name)
		}
	}
}

// nodeID is the driver's ID of a node, "" if the driver is not registered there.
func nodeID(node *storagev1.CSINode, driver string) string {
	for _, d := range node.Spec.Drivers {
		if d.Name == driver {
			return d.NodeID
		}
	}
	return ""
}
