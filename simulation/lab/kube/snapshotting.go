package kube

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

const (
	snapshotFinalizer = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	beingDeleted      = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	snapshotClass     = "snap"
)

// snapshotting is the snapshot-controller, for snapshots of claims.
func (w *World) snapshotting() (pieces []piece) {
	for _, snapshot := range all[*snapshotv1.VolumeSnapshot](w.mirror, snapshots) {
		pieces = append(pieces, w.snapshotPieces(snapshot)...)
	}
	return pieces
}

func contentName(snapshot *snapshotv1.VolumeSnapshot) string {
	return "snapcontent-" + string(snapshot.UID)
}

func (w *World) snapshotPieces(snapshot *snapshotv1.VolumeSnapshot) []piece {
	content, made := get[*snapshotv1.VolumeSnapshotContent](w.mirror, contents, "", contentName(snapshot))
	switch {
	case snapshot.DeletionTimestamp != nil && made && content.Annotations[beingDeleted] == "":
		return []piece{{"announce the deletion of snapshot " + snapshot.Name, func() { w.change(content, annotate(beingDeleted, "yes")) }}}
	case snapshot.DeletionTimestamp != nil && made && content.DeletionTimestamp == nil && content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete:
		return []piece{{"delete the content of snapshot " + snapshot.Name, func() { w.remove(content) }}}
	case snapshot.DeletionTimestamp != nil && made && content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete:
		return nil
	case snapshot.DeletionTimestamp != nil && !contains(snapshot.Finalizers, snapshotFinalizer):
		return nil // it waits for the finalizer of a controller that restores it
	case snapshot.DeletionTimestamp != nil:
		return []piece{{"release snapshot " + snapshot.Name, func() {
			w.change(snapshot, func(o object) { o.SetFinalizers(without(o.GetFinalizers(), snapshotFinalizer)) })
		}}}
	case !made:
		if pv, ok := w.sourceOf(snapshot); ok && snapshot.Status == nil {
			return []piece{{"create a content for snapshot " + snapshot.Name, func() { w.createContent(snapshot, pv) }}}
		}
		return nil
	case snapshot.Status == nil || snapshot.Status.BoundVolumeSnapshotContentName == nil:
		return []piece{{"bind snapshot " + snapshot.Name, func() {
			w.change(snapshot, func(o object) {
				name := content.Name
				asSnapshot(o).Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &name}
			})
		}}}
	case contentReady(content) && (snapshot.Status.ReadyToUse == nil || !*snapshot.Status.ReadyToUse):
		return []piece{{"snapshot " + snapshot.Name + " is ready", func() {
			w.change(snapshot, func(o object) {
				status := asSnapshot(o).Status
				status.ReadyToUse = content.Status.ReadyToUse
				if content.Status.CreationTime != nil {
					at := metav1.NewTime(time.Unix(0, *content.Status.CreationTime))
					status.CreationTime = &at
				}
				if content.Status.RestoreSize != nil {
					status.RestoreSize = resource.NewQuantity(*content.Status.RestoreSize, resource.BinarySI)
				}
			})
		}}}
	}
	return nil
}

func (w *World) sourceOf(snapshot *snapshotv1.VolumeSnapshot) (*corev1.PersistentVolume, bool) {
	pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, snapshot.Namespace, *snapshot.Spec.Source.PersistentVolumeClaimName)
	if !ok || pvc.Status.Phase != corev1.ClaimBound || pvc.DeletionTimestamp != nil {
		return nil, false
	}
	return get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName)
}

func (w *World) createContent(snapshot *snapshotv1.VolumeSnapshot, pv *corev1.PersistentVolume) {
	handle, class := pv.Spec.CSI.VolumeHandle, snapshotClass
	content := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: contentName(snapshot), UID: w.uid("content")},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driverName, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, VolumeSnapshotClassName: &class,
			Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: snapshot.Namespace, Name: snapshot.Name, UID: snapshot.UID,
			},
		},
	}
	if w.shape.secret {
		content.Annotations = map[string]string{
			claim.VolumeSnapshotKeys().SecretName: "keys", claim.VolumeSnapshotKeys().SecretNamespace: namespace,
		}
	}
	w.label(content, claim.ManagedByLabel, nodeOf(handle))
	w.put(content)
}

func contentReady(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.Status != nil && content.Status.ReadyToUse != nil && *content.Status.ReadyToUse
}

func asSnapshot(o object) *snapshotv1.VolumeSnapshot {
	s, _ := o.(*snapshotv1.VolumeSnapshot)
	return s
}
