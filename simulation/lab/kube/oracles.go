package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// calm ends what the world has broken.
func (w *World) calm() {
	w.lab.Calm()
	w.lab.Note("the faults end")
	w.storage.full, w.storage.readOnly = false, false
	w.server.Skew(0)
	for _, r := range w.replicas {
		if p := r.now(); p != nil {
			p.Pause(false)
			p.sight.restore()
		}
	}
	w.putSecret()
	w.putClass("a")
	for _, name := range w.nodes {
		if _, ok := get[*storagev1.CSINode](w.mirror, csiNodes, "", name); !ok {
			w.putNode(name)
		}
	}
	// A claim whose source is gone waits for ever, as it should.
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		if pvc.Spec.DataSource != nil && pvc.Spec.VolumeName == "" {
			w.removePodsOf(pvc)
			w.remove(pvc)
		}
	}
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		if pvc.Status.Phase == corev1.ClaimLost {
			w.removePodsOf(pvc)
			w.remove(pvc)
		}
	}
	for _, snapshot := range all[*snapshotv1.VolumeSnapshot](w.mirror, snapshots) {
		if _, ok := w.sourceOf(snapshot); !ok && (snapshot.Status == nil || snapshot.Status.ReadyToUse == nil) {
			w.remove(snapshot)
		}
	}
}

// deleteAll deletes what users made. An administrator gives up what is retained.
func (w *World) deleteAll() {
	w.deleteNamespace()
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		if pv.DeletionTimestamp != nil {
			continue // without the provisioner's finalizer, its volume would stay unseen
		}
		w.giveUpVolume(pv)
	}
	for _, content := range all[*snapshotv1.VolumeSnapshotContent](w.mirror, contents) {
		if content.DeletionTimestamp == nil {
			w.giveUp(content)
		}
	}
}

// giveUpLate gives up a volume whose PersistentVolume came after that: a process that ended has left
// an intent, whose volume the next one retains.
func (w *World) giveUpLate() {
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		if pv.DeletionTimestamp == nil && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			w.giveUpVolume(pv)
		}
	}
}

// consistent compares the objects with the storage.
func (w *World) consistent() error {
	return errors.Join(w.claimsServed(), w.volumesNamed(), w.noIntents(), w.attachmentsTrue(), w.debtsPaid(), w.snapshotsTrue(), w.nothingHangs())
}

func (w *World) claimsServed() error { //nolint:gocognit // one oracle
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		if pvc.DeletionTimestamp != nil {
			continue
		}
		if !w.shape.immediate && pvc.Spec.VolumeName == "" && !w.hasPod(pvc) {
			continue // it waits for its first consumer
		}
		if pvc.Status.Phase == corev1.ClaimLost || w.volumeGoes(pvc) || w.volumeGone(pvc) {
			continue
		}
		if pvc.Status.Phase != corev1.ClaimBound && w.storage.isLeft(string(pvc.UID)) {
			continue
		}
		if pvc.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %s is %s: annotations %v, labels %v", pvc.Name, pvc.Status.Phase, pvc.Annotations, pvc.Labels)
		}
		desired, have := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
		pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName)
		if !ok || pv.DeletionTimestamp != nil || w.retained.lost(pv.Spec.CSI.VolumeHandle) {
			continue
		}
		if have.Cmp(desired) < 0 || w.driver.Size(pv.Spec.CSI.VolumeHandle) < have.Value() {
			return fmt.Errorf("claim %s wants %s, says %s, and the volume has %d", pvc.Name, desired.String(), have.String(), w.driver.Size(pv.Spec.CSI.VolumeHandle))
		}
		if class := pvc.Spec.VolumeAttributesClassName; w.shape.modify && class != nil {
			current := pvc.Status.CurrentVolumeAttributesClassName
			if current == nil || *current != *class {
				return fmt.Errorf("claim %s wants attributes class %s", pvc.Name, *class)
			}
			if w.driver.Modified(pv.Spec.CSI.VolumeHandle)["level"] != *class {
				return fmt.Errorf("claim %s says attributes class %s, and the volume has %v", pvc.Name, *class, w.driver.Modified(pv.Spec.CSI.VolumeHandle))
			}
		}
	}
	return nil
}

// volumeGoes reports whether an administrator deleted the PersistentVolume of a claim before
// the claim was bound to it: Kubernetes binds no claim to it then, and makes no other.
func (w *World) volumeGoes(pvc *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(all[*corev1.PersistentVolume](w.mirror, volumes), func(pv *corev1.PersistentVolume) bool {
		return pv.DeletionTimestamp != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == pvc.UID
	})
}

// volumeGone reports whether a claim waits for the PersistentVolume that a user has chosen, which is
// deleted.
func (w *World) volumeGone(pvc *corev1.PersistentVolumeClaim) bool {
	_, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName)
	return !ok && pvc.Spec.VolumeName != "" && pvc.Status.Phase == corev1.ClaimPending
}

// hasPod reports whether a pod waits for a claim. One that has a node was scheduled with an earlier
// claim of that name: the scheduler selects no node for the new one.
func (w *World) hasPod(pvc *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(all[*corev1.Pod](w.mirror, pods), func(pod *corev1.Pod) bool {
		return claimOf(pod) == pvc.Name && pod.Spec.NodeName == ""
	})
}

// volumesNamed: each volume is named by an object, and each object's volume exists.
func (w *World) volumesNamed() error {
	existing := w.driver.Volumes()
	for _, volume := range slices.Sorted(maps.Keys(existing)) {
		if !w.named(volume, existing[volume]) && !w.storage.bare[existing[volume]] {
			return fmt.Errorf("no object names volume %s", volume)
		}
	}
	handles := slices.Collect(maps.Values(existing))
	named := map[string]string{}
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		handle := pv.Spec.CSI.VolumeHandle
		if other := named[handle]; other != "" && pv.DeletionTimestamp == nil {
			return fmt.Errorf("PersistentVolumes %s and %s name volume %s", other, pv.Name, handle)
		}
		if nodes := w.nodesOf(pv); w.shape.nodes && pv.Spec.NodeAffinity != nil && !slices.Equal(nodes, []string{nodeOf(handle)}) {
			return fmt.Errorf("PersistentVolume %s says that volume %s is on %v", pv.Name, handle, nodes)
		}
		named[handle] = pv.Name
		if pv.DeletionTimestamp == nil && !contains(handles, handle) && !w.retained.lost(handle) {
			return fmt.Errorf("PersistentVolume %s names volume %s, which does not exist", pv.Name, handle)
		}
	}
	return nil
}

// noIntents: everything that was begun is completed.
func (w *World) noIntents() error {
	for _, stored := range all[*corev1.ConfigMap](w.mirror, configMaps) {
		for _, key := range slices.Sorted(maps.Keys(stored.Data)) {
			if w.storage.isLeft(strings.TrimSuffix(key, ".change")) {
				continue
			}
			return fmt.Errorf("the intent of claim %s is left: %s", key, stored.Data[key])
		}
	}
	return nil
}

// attachmentsTrue compares the VolumeAttachments with the storage.
func (w *World) attachmentsTrue() error {
	desired := map[string]bool{}
	for _, va := range all[*storagev1.VolumeAttachment](w.mirror, attachments) {
		where, err := w.attachmentTrue(va)
		if err != nil {
			return err
		}
		if where != "" {
			desired[where] = true
		}
	}
	published := w.driver.Attachments()
	for _, handle := range slices.Sorted(maps.Keys(published)) {
		for _, node := range published[handle] {
			where := handle + " " + node
			if !desired[where] && !w.storage.forced[where] && !w.recorded(handle, node) {
				return fmt.Errorf("volume %s is published to %s, and no VolumeAttachment says so", handle, node)
			}
			delete(desired, where)
		}
	}
	for _, where := range slices.Sorted(maps.Keys(desired)) {
		return fmt.Errorf("a VolumeAttachment says that %s is attached, and it is not", where)
	}
	return nil
}

// attachmentTrue checks a VolumeAttachment, and returns the volume and the node that it
// says to be attached; "" if nothing has to be.
func (w *World) attachmentTrue(va *storagev1.VolumeAttachment) (where string, err error) {
	pv, known := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va))
	switch {
	case known && w.retained.lost(pv.Spec.CSI.VolumeHandle):
		return "", nil // its volume may be gone
	case known && pv.DeletionTimestamp != nil && !va.Status.Attached && va.DeletionTimestamp == nil:
		return "", w.explainPods(va) // a volume that goes is not attached
	case known && va.DeletionTimestamp == nil && !va.Status.Attached && w.leftElsewhere(pv.Spec.CSI.VolumeHandle, "id-"+va.Spec.NodeName):
		return "", w.explainPods(va) // an administrator has to unpublish it there
	case va.DeletionTimestamp != nil || !va.Status.Attached:
		return "", fmt.Errorf("VolumeAttachment of %s to %s: attached %t, deleted %v, %+v",
			volumeOf(va), va.Spec.NodeName, va.Status.Attached, va.DeletionTimestamp, va.Status.AttachError)
	case !known:
		return "", nil
	}
	return pv.Spec.CSI.VolumeHandle + " id-" + va.Spec.NodeName, nil
}

// leftElsewhere reports whether a volume is still published to another node, from which its
// VolumeAttachment was removed by force.
func (w *World) leftElsewhere(handle, node string) bool {
	return slices.ContainsFunc(w.driver.Attachments()[handle], func(other string) bool {
		return other != node && w.storage.isForced(handle, other) && !w.recorded(handle, other)
	})
}

// snapshotsTrue compares the contents with the storage.
func (w *World) snapshotsTrue() error {
	left := w.driver.SnapshotsLeft()
	named := map[string]bool{}
	for _, content := range all[*snapshotv1.VolumeSnapshotContent](w.mirror, contents) {
		if content.DeletionTimestamp != nil {
			return fmt.Errorf("content %s is being deleted", content.Name)
		}
		handle := snapshotOf(content)
		if handle == "" && !w.wanted(content) {
			continue // it was deleted before the driver was asked
		}
		if !contentReady(content) {
			return fmt.Errorf("content %s is not ready", content.Name)
		}
		named[handle] = true
		if !contains(left, handle) && !w.retained.lost(handle) {
			return fmt.Errorf("content %s names snapshot %s, which does not exist", content.Name, handle)
		}
	}
	for _, handle := range left {
		if !named[handle] && !w.retained.wasLeft(handle) {
			return fmt.Errorf("no content names snapshot %s", handle)
		}
	}
	return nil
}

// nothingHangs: no deletion waits that nothing holds back.
func (w *World) nothingHangs() error {
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		if pv.DeletionTimestamp != nil && pv.Status.Phase != corev1.VolumeBound {
			return fmt.Errorf("PersistentVolume %s is being deleted, with finalizers %v", pv.Name, pv.Finalizers)
		}
		if pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			return fmt.Errorf("PersistentVolume %s is to be reclaimed", pv.Name)
		}
	}
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		if pvc.DeletionTimestamp != nil && !w.used(pvc) {
			return fmt.Errorf("claim %s is being deleted, with finalizers %v", pvc.Name, pvc.Finalizers)
		}
	}
	return nil
}

// empty: nothing is left.
func (w *World) empty() error {
	w.giveUpLate()
	for _, resource := range []string{claims, volumes, attachments, snapshots, contents} {
		for _, o := range all[object](w.mirror, resource) {
			return fmt.Errorf("%s %s is left, deleted %v, finalizers %v", resource, o.GetName(), o.GetDeletionTimestamp(), o.GetFinalizers())
		}
	}
	existing := w.driver.Volumes()
	for _, volume := range slices.Sorted(maps.Keys(existing)) {
		if !w.storage.bare[existing[volume]] {
			return fmt.Errorf("volume %s is left", volume)
		}
	}
	for _, handle := range w.driver.SnapshotsLeft() {
		if !w.retained.wasLeft(handle) {
			return fmt.Errorf("snapshot %s is left", handle)
		}
	}
	return w.noIntents()
}
