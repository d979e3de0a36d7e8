package kube

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/simulation/lab"
)

func (w *World) adminActions() []lab.Action { //nolint:funlen // a table
	return []lab.Action{
		{Name: "an administrator creates the class again", Do: func() { w.putClass(lab.Pick(w.lab, "a", "b", "c")) }},
		{Name: "an administrator creates the class of snapshots again", Do: func() { w.putSnapshotClass(lab.Pick(w.lab, "a", "b", "c")) }},
		{Name: "an administrator retains a volume", Weight: 2, Do: func() {
			if pv, ok := prefer(w, volumes, func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeReleased }); ok {
				w.retain(pv)
			}
		}},
		{Name: "an administrator retains a snapshot", Weight: 2, Do: func() {
			if content, ok := prefer(w, contents, func(c *snapshotv1.VolumeSnapshotContent) bool { return c.DeletionTimestamp != nil }); ok {
				w.retainContent(content)
			}
		}},
		{Name: "an administrator gives up a snapshot", Do: func() {
			if content, ok := pick(w, contents, func(c *snapshotv1.VolumeSnapshotContent) bool { return c.DeletionTimestamp == nil }); ok {
				w.giveUp(content)
			}
		}},
		{Name: "an administrator moves a volume to another PersistentVolume", Weight: 2, Do: func() {
			if pv, ok := pick(w, volumes, w.movable); ok {
				w.move(pv)
			}
		}},
		{Name: "an administrator gives up a volume", Do: func() {
			if pv, ok := pick(w, volumes, func(pv *corev1.PersistentVolume) bool { return pv.DeletionTimestamp == nil }); ok {
				w.giveUpVolume(pv)
			}
		}},
		{Name: "an administrator deletes a volume", Do: func() {
			if pv, ok := pick[*corev1.PersistentVolume](w, volumes, nil); ok {
				w.lab.Note("volume %s", pv.Name)
				w.remove(pv)
			}
		}},
		{Name: "an administrator removes a volume attachment by force", Do: func() {
			if va, ok := prefer(w, attachments, w.isPublished); ok {
				w.removeByForce(va)
			}
		}},
		{Name: "a node is lost or comes back", Do: func() {
			name := lab.Pick(w.lab, w.nodes...)
			if node, ok := get[*storagev1.CSINode](w.mirror, csiNodes, "", name); ok {
				w.drop(node)
				return
			}
			w.putNode(name)
		}},
		{Name: "the secret is deleted or created", Do: func() {
			if secret, ok := get[*corev1.Secret](w.mirror, secrets, namespace, "keys"); ok {
				w.drop(secret)
				return
			}
			w.putSecret()
		}},
		{Name: "an administrator deletes the lease", Do: func() {
			for _, held := range all[*coordinationv1.Lease](w.mirror, leases) {
				w.remove(held)
			}
		}},
		{Name: "the namespace is deleted", Do: func() {
			if w.lab.OneIn(4) {
				w.deleteNamespace()
			}
		}},
	}
}

func (w *World) deleteNamespace() {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		w.remove(pod)
	}
	for _, snapshot := range all[*snapshotv1.VolumeSnapshot](w.mirror, snapshots) {
		w.remove(snapshot)
	}
	for _, pvc := range all[*corev1.PersistentVolumeClaim](w.mirror, claims) {
		w.remove(pvc)
	}
}

// prefer is pick, half of the time of the objects that a condition selects.
func prefer[T object](w *World, resource string, condition func(T) bool) (T, bool) {
	if w.lab.OneIn(2) {
		if found, ok := pick(w, resource, condition); ok {
			return found, true
		}
	}
	return pick[T](w, resource, nil)
}

// giveUp sets the policy of a content to Delete, and deletes it if its snapshot is gone.
func (w *World) giveUp(content *snapshotv1.VolumeSnapshotContent) {
	w.lab.Note("content %s", content.Name)
	w.retained.givesUp(snapshotOf(content))
	w.change(content, func(o object) { asContent(o).Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentDelete })
	if !w.wanted(content) {
		w.remove(content)
	}
}

// wanted reports whether the VolumeSnapshot of a content exists.
func (w *World) wanted(content *snapshotv1.VolumeSnapshotContent) bool {
	ref := content.Spec.VolumeSnapshotRef
	snapshot, ok := get[*snapshotv1.VolumeSnapshot](w.mirror, snapshots, ref.Namespace, ref.Name)
	return ok && snapshot.UID == ref.UID
}

// movable reports whether an administrator can give the volume of a PersistentVolume to another
// one: it is released and retained, and nothing deletes it.
func (w *World) movable(pv *corev1.PersistentVolume) bool {
	return pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain && !w.retained.begun(pv.Spec.CSI.VolumeHandle)
}

// moved begins the names of PersistentVolumes that administrators write.
const moved = "moved-"

// move gives the volume of a PersistentVolume to one of another name, for a new claim, and
// deletes the first one.
func (w *World) move(old *corev1.PersistentVolume) {
	name := moved + string(old.UID)
	w.lab.Note("volume %s to %s", old.Name, name)
	w.retained.moves(old.Spec.CSI.VolumeHandle, about(volumes, old.Name))
	w.retained.givesUp(old.Spec.CSI.VolumeHandle)
	var ref *corev1.ObjectReference
	w.createClaim(func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.VolumeName = name
		ref = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID}
	})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: w.uid("volume")}, Spec: *old.Spec.DeepCopy()}
	pv.Spec.ClaimRef = ref
	if w.shape.nodes && w.lab.OneIn(2) {
		pv.Spec.NodeAffinity = nil // only the drivers know where it is
	}
	pv.Spec.PersistentVolumeReclaimPolicy = lab.Pick(w.lab, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	w.put(pv)
	w.remove(old)
}

// isPublished reports whether the driver publishes the volume of a VolumeAttachment now, or has
// published it.
func (w *World) isPublished(va *storagev1.VolumeAttachment) bool {
	pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va))
	return ok && w.storage.isBusy(pv.Spec.CSI.VolumeHandle)
}

// removeByForce removes a VolumeAttachment with its finalizers, and perhaps the pods that need it.
func (w *World) removeByForce(va *storagev1.VolumeAttachment) {
	if pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", volumeOf(va)); ok {
		where := pv.Spec.CSI.VolumeHandle + " id-" + va.Spec.NodeName
		w.storage.forced[where], w.storage.racing[where] = true, true
		if pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, namespace, pv.Spec.ClaimRef.Name); ok && w.lab.OneIn(2) {
			w.removePodsOf(pvc)
		}
	}
	w.lab.Note("attachment of %s to %s", volumeOf(va), va.Spec.NodeName)
	w.drop(va)
}
