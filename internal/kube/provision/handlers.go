package provision

import (
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// listen registers the handlers that queue work for changes of objects.
func (c *Controller) listen() {
	c.claims.OnChange(c.claimChanged)
	c.volumes.OnChange(c.volumeChanged)
	c.classes.OnChange(c.classChanged)
	c.attributes.OnChange(func(_, now *storagev1.VolumeAttributesClass) {
		if now != nil && now.DriverName == c.env.Driver {
			c.wake(cluster.ClaimByAttributesClass(), now.Name)
		}
	})
	if c.attached.store != nil {
		c.attached.store.OnChange(func(old, now *storagev1.VolumeAttachment) {
			if now == nil && old.Spec.Source.PersistentVolumeName != nil {
				c.volumeQueue.Add(*old.Spec.Source.PersistentVolumeName)
			}
		})
	}
	if c.snapshots != nil {
		c.snapshots.OnChange(c.snapshotChanged)
	}
	if c.contents != nil {
		c.contents.OnChange(func(old, now *snapshotv1.VolumeSnapshotContent) {
			if c.env.Scope.Labelled && old == nil && now.Spec.Driver == c.env.Driver {
				// The snapshot is not watched, and may have been released from a copy before the start.
				c.sourceQueue.Add(cluster.SnapshotSource(now.Spec.VolumeSnapshotRef.Namespace, now.Spec.VolumeSnapshotRef.Name))
			}
			if now != nil && now.Spec.Driver == c.env.Driver && c.hasSnapshot(now) {
				c.wake(cluster.ClaimBySource(), cluster.SnapshotSource(now.Spec.VolumeSnapshotRef.Namespace, now.Spec.VolumeSnapshotRef.Name))
			}
		})
	}
}

func (c *Controller) claimChanged(old, now *corev1.PersistentVolumeClaim) {
	if old != nil && (now == nil || now.UID != old.UID) {
		c.claimGone(old)
	}
	if now == nil {
		return
	}
	key := string(now.UID)
	// Clones of this claim may have waited for it.
	c.wake(cluster.ClaimBySource(), cluster.ClaimSource(now.Namespace, now.Name))
	if slices.Contains(now.Finalizers, lifecycle.CloneFinalizer) {
		c.sourceQueue.Add(cluster.ClaimSource(now.Namespace, now.Name))
	}
	if !c.forDriver(now) {
		return
	}
	if now.Spec.VolumeName != "" {
		c.claimServed(old, now)
		return
	}
	changed := old != nil && asksElse(old, now)
	c.progress.note(now.UID, func(s *step) { s.update(time.Now(), changed) })
	if changed {
		c.claimQueue.Forget(key)
	}
	if _, begun := c.intents.Get(key); begun || c.serves(now) {
		c.claimQueue.Add(key)
	}
}

// claimGone queues the undoing of the claim's intent and the release of its source.
func (c *Controller) claimGone(old *corev1.PersistentVolumeClaim) {
	if !c.forDriver(old) {
		return
	}
	key := string(old.UID)
	if _, begun := c.intents.Get(key); begun {
		c.claimQueue.Forget(key)
	}
	c.claimQueue.Add(key) // forgets what is known of it
	c.release(old)
}

// claimServed forgets a claim that has its volume.
func (c *Controller) claimServed(old, now *corev1.PersistentVolumeClaim) {
	key := string(now.UID)
	if _, begun := c.intents.Get(key); begun {
		c.claimQueue.Add(key)
	} else {
		c.forgetBound(now.UID)
	}
	if old == nil || old.Spec.VolumeName == "" {
		c.release(now)
	}
}

// release queues the claim's source, which is unprotected if no other claim uses it.
func (c *Controller) release(pvc *corev1.PersistentVolumeClaim) {
	for _, source := range cluster.ClaimBySource().Values(pvc) {
		c.sourceQueue.Add(source)
	}
}

// grantsChanged queues what the ReferenceGrants of a namespace decide: claims that are made
// of something in it, and their sources, which a claim without a grant does not keep.
func (c *Controller) grantsChanged(namespace string) {
	c.wake(cluster.ClaimByForeignSource(), namespace)
	for _, pvc := range c.claims.By(cluster.ClaimByForeignSource(), namespace) {
		c.release(pvc)
	}
}

// asksElse reports whether a claim asks for something else than before, so that
// earlier failures say nothing.
func asksElse(old, now *corev1.PersistentVolumeClaim) bool {
	class := func(p *corev1.PersistentVolumeClaim) string {
		if p.Spec.VolumeAttributesClassName == nil {
			return ""
		}
		return *p.Spec.VolumeAttributesClassName
	}
	return selectedNode(old) != selectedNode(now) || className(old) != className(now) || class(old) != class(now)
}

// wake queues pending claims at once.
func (c *Controller) wake(index cluster.Index[*corev1.PersistentVolumeClaim], value string) {
	for _, pvc := range c.claims.By(index, value) {
		if c.pending(pvc) && c.serves(pvc) {
			c.claimQueue.Forget(string(pvc.UID))
			c.claimQueue.Add(string(pvc.UID))
		}
	}
}

func (c *Controller) classChanged(old, now *storagev1.StorageClass) {
	if now != nil && c.provisions(now.Provisioner) && (old == nil || old.UID != now.UID) {
		c.wake(cluster.ClaimByClass(), now.Name)
	}
}

func (c *Controller) volumeChanged(old, now *corev1.PersistentVolume) {
	if old != nil && (now == nil || lifecycle.ReclaimDue(now) != lifecycle.ReclaimDue(old)) {
		c.wakeTwins(old)
	}
	if now == nil {
		// A claim may wait for the end of an object of its volume's name.
		if old.Spec.ClaimRef != nil && c.made(old) {
			c.claimQueue.Add(string(old.Spec.ClaimRef.UID))
		}
		return
	}
	if of := now.Spec.ClaimRef; of != nil && (old == nil || old.Spec.ClaimRef == nil || old.Spec.ClaimRef.UID != of.UID) {
		// Clones of its claim may have seen the claim first.
		c.wake(cluster.ClaimBySource(), cluster.ClaimSource(of.Namespace, of.Name))
	}
	if c.made(now) && c.due(now) != lifecycle.DueNothing {
		if old != nil && old.Spec.PersistentVolumeReclaimPolicy != now.Spec.PersistentVolumeReclaimPolicy {
			c.volumeQueue.Forget(now.Name)
		}
		c.volumeQueue.Add(now.Name)
	}
}

// wakeTwins queues the other PersistentVolumes of a volume, which may have waited for
// this one.
func (c *Controller) wakeTwins(pv *corev1.PersistentVolume) {
	if pv.Spec.CSI == nil {
		return
	}
	for _, twin := range c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle)) {
		if twin.Name != pv.Name && c.made(twin) && c.due(twin) != lifecycle.DueNothing {
			c.volumeQueue.Add(twin.Name)
		}
	}
}

func (c *Controller) snapshotChanged(_, now *snapshotv1.VolumeSnapshot) {
	if now == nil {
		return
	}
	c.wake(cluster.ClaimBySource(), cluster.SnapshotSource(now.Namespace, now.Name))
	if slices.Contains(now.Finalizers, lifecycle.RestoreFinalizer) {
		c.sourceQueue.Add(cluster.SnapshotSource(now.Namespace, now.Name))
	}
}

// made reports whether a PersistentVolume is one of this driver's: made by it, or
// written by hand for a volume of its own.
func (c *Controller) made(pv *corev1.PersistentVolume) bool {
	if !c.ofDriver(pv) {
		return false
	}
	by, known := pv.Annotations[claim.ProvisionedByAnnotation]
	return !known || by == c.env.Driver || pv.Annotations[migration.MigratedToAnnotation] == c.env.Driver
}
