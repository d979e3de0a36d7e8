package resize

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Reasons of events. They are external-resizer's, so that its alerts keep working.
const (
	reasonResizing         = "Resizing"
	reasonResizeFailed     = "VolumeResizeFailed"
	reasonNodeRequired     = "FileSystemResizeRequired"
	reasonResizeSuccessful = "VolumeResizeSuccessful"
	reasonModify           = "VolumeModify"
	reasonModifyFailed     = "VolumeModifyFailed"
	reasonModifySuccessful = "VolumeModifySuccessful"
	reasonModifyCanceled   = "VolumeModifyCanceled"
	reasonModifyWarning    = "VolumeModifyWarning" // of our own
)

// The handlers below do nothing before Run, which queues every claim: a standby must
// not collect the work of the process with the lease.

// enqueue queues a claim that may need work.
func (c *Controller) enqueue(pvc *corev1.PersistentVolumeClaim) {
	if c.running.Load() && c.hasWork(pvc) {
		c.add(cluster.KeyOf(pvc))
	}
}

func (c *Controller) add(key string) {
	c.queue.Add(key)
	if c.modifying != nil {
		c.modifying.Add(key)
	}
}

// forget resets the backoff of a claim.
func (c *Controller) forget(key string) {
	c.queue.Forget(key)
	if c.modifying != nil {
		c.modifying.Forget(key)
	}
}

// requeue queues a claim whose desired size or class changed, without the rest of its
// backoff.
func (c *Controller) requeue(pvc *corev1.PersistentVolumeClaim) {
	c.forget(cluster.KeyOf(pvc))
	c.enqueue(pvc)
}

// hasWork reports, without a call, whether a claim may need work.
func (c *Controller) hasWork(pvc *corev1.PersistentVolumeClaim) bool {
	if pvc.Spec.VolumeName == "" {
		return false
	}
	volume, found := c.volumes.Get(pvc.Spec.VolumeName)
	if !found || !c.owns(volume) {
		return false
	}
	_, marked := volume.Annotations[claim.PreResizeAnnotation]
	return marked || claim.ResizeOf(pvc, volume).Asked() || claim.ModifyOf(pvc).Step() != claim.ModifyNothing
}

func (c *Controller) claimChanged(before, after *corev1.PersistentVolumeClaim) {
	switch {
	case after == nil:
		c.memories.drop(before.UID)
		c.forget(cluster.KeyOf(before))
	case before == nil:
		c.requeue(after)
	case before.UID != after.UID: // the watch missed the deletion and the new claim
		c.memories.drop(before.UID)
		c.requeue(after)
	case needsSync(before, after):
		c.requeue(after)
	}
}

// needsSync reports whether an update of a claim requires work. It ignores this
// controller's own status writes: recording a failure must not cause a retry at once.
func needsSync(before, after *corev1.PersistentVolumeClaim) bool {
	const kind = corev1.ResourceStorage
	wantedBefore, wanted := before.Spec.Resources.Requests[kind], after.Spec.Resources.Requests[kind]
	grantedBefore, granted := before.Status.Capacity[kind], after.Status.Capacity[kind]
	stateBefore, state := before.Status.AllocatedResourceStatuses[kind], after.Status.AllocatedResourceStatuses[kind]
	return wanted.Cmp(wantedBefore) != 0 || granted.Cmp(grantedBefore) != 0 ||
		!equality.Semantic.DeepEqual(before.Spec.VolumeAttributesClassName, after.Spec.VolumeAttributesClassName) ||
		before.Spec.VolumeName != after.Spec.VolumeName || before.Status.Phase != after.Status.Phase ||
		state != stateBefore && (state == "" || state == corev1.PersistentVolumeClaimNodeResizeInfeasible) ||
		!unused(before) && unused(after)
}

// unused reports whether Kubernetes reports that no pod uses the claim (1.37, gate
// PersistentVolumeClaimUnusedSinceTime).
func unused(pvc *corev1.PersistentVolumeClaim) bool {
	return claim.Condition(pvc, corev1.PersistentVolumeClaimUnused) != nil
}

// volumeChanged wakes a claim that was seen before its volume.
func (c *Controller) volumeChanged(before, after *corev1.PersistentVolume) {
	if after == nil || before != nil && equality.Semantic.DeepEqual(before.Spec.ClaimRef, after.Spec.ClaimRef) {
		return
	}
	if ref := after.Spec.ClaimRef; ref != nil {
		if pvc, found := c.claims.Get(ref.Namespace + "/" + ref.Name); found {
			c.enqueue(pvc)
		}
	}
}

// classChanged wakes the claims that wait for a class of that name.
func (c *Controller) classChanged(before, after *storagev1.VolumeAttributesClass) {
	if after == nil || before != nil && before.UID == after.UID {
		return
	}
	for _, pvc := range c.claims.By(cluster.ClaimByAttributesClass(), after.Name) {
		c.memories.change(pvc.UID, func(m *memory) { m.modify.Rejected = "" })
		c.requeue(pvc)
	}
}

// attachmentChanged wakes a claim whose driver refused while it was attached.
func (c *Controller) attachmentChanged(before, after *storagev1.VolumeAttachment) {
	if before == nil || before.Spec.Source.PersistentVolumeName == nil || after != nil && after.Status.Attached {
		return
	}
	for _, pvc := range c.claims.By(cluster.ClaimByVolumeName(), *before.Spec.Source.PersistentVolumeName) {
		if !c.memories.of(pvc.UID).expand.InUse.IsZero() {
			c.requeue(pvc)
		}
	}
}

// fail writes an event about a failure, except at the end of the process, which
// concerns no user.
func (c *Controller) fail(ctx context.Context, s subject, reason, text string) {
	if ctx.Err() == nil {
		c.env.Recorder.Event(s.claim, corev1.EventTypeWarning, reason, text)
	}
}

func (c *Controller) event(s subject, reason, text string) {
	c.env.Recorder.Event(s.claim, corev1.EventTypeNormal, reason, text)
}
