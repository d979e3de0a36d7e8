package coordinate

import (
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// listen registers the handlers that queue work for changes of objects.
func (c *Controller) listen() {
	c.claims.OnChange(c.claimChanged)
	c.volumes.OnChange(c.volumeChanged)
	c.classes.OnChange(func(_, now *storagev1.StorageClass) {
		if now != nil && now.Provisioner == c.env.Driver {
			c.wake(cluster.ClaimByClass(), now.Name)
		}
	})
	c.snapshots.OnChange(func(old, now *snapshotv1.VolumeSnapshot) {
		if now == nil {
			now = old
		}
		key := cluster.SnapshotSource(now.Namespace, now.Name)
		c.wake(cluster.ClaimBySource(), key)
		if now.DeletionTimestamp != nil {
			c.sourceQueue.Add(key)
		}
	})
	c.contents.listen(c.env.Driver, c.contentQueue.Add)
	c.contents.store.OnChange(func(_, now *snapshotv1.VolumeSnapshotContent) {
		if now != nil && now.Spec.Driver == c.env.Driver {
			user := now.Spec.VolumeSnapshotRef
			c.wake(cluster.ClaimBySource(), cluster.SnapshotSource(user.Namespace, user.Name))
		}
	})
	c.groups.listen(c.env.Driver, c.groupQueue.Add)
	c.nodes.onChange(c.nodeChanged)
	c.rooms.onGrowth(func() { c.claimQueue.AddAfter(wakeKey, gather) })
}

func (c *Controller) claimChanged(old, now *corev1.PersistentVolumeClaim) {
	if old != nil && (now == nil || now.UID != old.UID) {
		c.placements.forget(old.UID)
		c.events.forget(old.UID)
		c.release(old)
	}
	if now == nil {
		return
	}
	c.place(old, now)
	source := cluster.ClaimSource(now.Namespace, now.Name)
	c.wake(cluster.ClaimBySource(), source)
	if now.DeletionTimestamp != nil && slices.Contains(now.Finalizers, lifecycle.CloneFinalizer) {
		c.sourceQueue.Add(source)
	}
	if now.Spec.VolumeName != "" && (old == nil || old.Spec.VolumeName == "") {
		c.placements.forget(now.UID)
		c.events.forget(now.UID)
		c.release(now)
	}
	if c.concerns(now) {
		c.claimQueue.Add(cluster.KeyOf(now))
	}
}

// place keeps account of the claim's room on its selected node until it has a volume, and
// of the nodes that have removed their selection. The cache may already show the removal of
// a selection when the selection itself is handled.
func (c *Controller) place(old, now *corev1.PersistentVolumeClaim) {
	changed := now
	if current, found := c.claims.Get(cluster.KeyOf(now)); found && current.UID == now.UID {
		now = current // this process's own write may be newer, too
	}
	node := claim.SelectedNode(now)
	switch {
	case node != "" && c.pending(now):
		c.placements.put(now.UID, placement{node: node, key: cluster.KeyOf(now), bytes: size(now), written: true})
	case node == "" && now.Spec.VolumeName == "":
		if old != nil {
			c.placements.skip(now.UID, claim.SelectedNode(old))
		}
		c.placements.skip(now.UID, claim.SelectedNode(changed))
		c.placements.deselected(now.UID)
	default:
		c.placements.remove(now.UID)
	}
}

// release queues the source of a claim that does not wait for it any more.
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

// wake queues pending claims at once.
func (c *Controller) wake(index cluster.Index[*corev1.PersistentVolumeClaim], value string) {
	for _, pvc := range c.claims.By(index, value) {
		if c.pending(pvc) {
			c.claimQueue.Forget(cluster.KeyOf(pvc))
			c.claimQueue.Add(cluster.KeyOf(pvc))
		}
	}
}

func (c *Controller) volumeChanged(old, now *corev1.PersistentVolume) {
	changed := now
	if now == nil {
		changed = old
	}
	if !c.made(changed) {
		return
	}
	if now != nil {
		c.volumeQueue.Add(now.Name)
	}
	if old != nil && now != nil && old.Labels[claim.NodeLabel] == now.Labels[claim.NodeLabel] && old.Status.Phase == now.Status.Phase {
		return
	}
	for _, pvc := range c.claims.By(cluster.ClaimByVolumeName(), changed.Name) {
		c.claimQueue.Add(cluster.KeyOf(pvc))
		c.wake(cluster.ClaimBySource(), cluster.ClaimSource(pvc.Namespace, pvc.Name))
		c.sourceQueue.Add(cluster.ClaimSource(pvc.Namespace, pvc.Name))
	}
}

// nodeChanged queues the objects that a node's coming or going concerns.
func (c *Controller) nodeChanged(name string) {
	for _, key := range c.placements.on(name) {
		c.claimQueue.Add(key)
	}
	for _, pv := range c.volumes.By(c.volumesByLabel(), claim.NodeLabelValue(name)) {
		c.volumeQueue.Add(pv.Name)
	}
	c.volumeQueue.AddAfter(wakeKey, gather)
	c.claimQueue.AddAfter(wakeKey, gather)
}

// pending reports whether a claim for the driver waits for a volume. With late binding it
// is for the driver once a node was selected.
func (c *Controller) pending(pvc *corev1.PersistentVolumeClaim) bool {
	return c.unbound(pvc) && claim.Provisioner(pvc) == c.env.Driver
}

func (c *Controller) unbound(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == "" && pvc.DeletionTimestamp == nil
}

// ofClass reports whether a claim's class is the driver's.
func (c *Controller) ofClass(pvc *corev1.PersistentVolumeClaim) bool {
	class, found := c.classes.Get(claim.ClassName(pvc))
	return found && class.Provisioner == c.env.Driver
}

// concerns reports whether a claim is for the driver, will be, or has a volume of it.
func (c *Controller) concerns(pvc *corev1.PersistentVolumeClaim) bool {
	return claim.Provisioner(pvc) == c.env.Driver || c.volumeOf(pvc) != nil || c.unbound(pvc) && c.ofClass(pvc)
}

// volumeOf returns the driver's volume that a claim is bound to, or nil.
func (c *Controller) volumeOf(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if pvc.Spec.VolumeName == "" {
		return nil
	}
	pv, found := c.volumes.Get(pvc.Spec.VolumeName)
	if !found || !c.made(pv) {
		return nil
	}
	return pv
}

// wakeKey is the key of the queues that stands for all claims, or all volumes, without a
// node. No object has it as its key, and no label as its value.
const wakeKey = "/"

// waitingClaims finds the pending claims without a selected node.
func (c *Controller) waitingClaims() cluster.Index[*corev1.PersistentVolumeClaim] {
	return cluster.Index[*corev1.PersistentVolumeClaim]{Name: "waiting", Values: func(pvc *corev1.PersistentVolumeClaim) []string {
		if c.pending(pvc) && claim.SelectedNode(pvc) == "" {
			return []string{wakeKey}
		}
		return nil
	}}
}

func size(pvc *corev1.PersistentVolumeClaim) int64 {
	requested := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	return requested.Value()
}
