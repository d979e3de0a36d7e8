package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// use is that a pod on a node uses a volume.
type use struct{ volume, node string }

// uses are the volumes that pods use.
func (w *World) uses() (found []use) {
	for _, pod := range all[*corev1.Pod](w.mirror, pods) {
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, pod.Namespace, claimOf(pod))
		if !ok || pod.Spec.NodeName == "" || pvc.Status.Phase != corev1.ClaimBound {
			continue
		}
		if _, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", pvc.Spec.VolumeName); ok {
			found = append(found, use{pvc.Spec.VolumeName, pod.Spec.NodeName})
		}
	}
	return found
}

// attaching is the attach-detach controller. Each volume is for one node at a time.
func (w *World) attaching() (pieces []piece) {
	if !w.shape.attach {
		return nil
	}
	desired := w.uses()
	for _, va := range all[*storagev1.VolumeAttachment](w.mirror, attachments) {
		if va.DeletionTimestamp == nil && !slices.Contains(desired, use{volumeOf(va), va.Spec.NodeName}) {
			pieces = append(pieces, piece{"detach " + volumeOf(va) + " from " + va.Spec.NodeName, func() { w.remove(va) }})
		}
	}
	for _, u := range desired {
		if pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", u.volume); !ok || len(w.attachmentsOf(pv.Spec.CSI.VolumeHandle)) > 0 {
			continue
		}
		pieces = append(pieces, piece{"attach " + u.volume + " to " + u.node, func() { w.attach(u) }})
	}
	return pieces
}

func (w *World) attach(u use) {
	pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", u.volume)
	if !ok {
		return
	}
	w.put(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: claim.AttachmentName(pv.Spec.CSI.VolumeHandle, driverName, u.node), UID: w.uid("va")},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driverName, NodeName: u.node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &u.volume},
		},
	})
}

func volumeOf(va *storagev1.VolumeAttachment) string {
	if va.Spec.Source.PersistentVolumeName == nil {
		return ""
	}
	return *va.Spec.Source.PersistentVolumeName
}

// attachmentsOf returns the VolumeAttachments of a volume, by its handle.
func (w *World) attachmentsOf(handle string) (found []*storagev1.VolumeAttachment) {
	for _, va := range all[*storagev1.VolumeAttachment](w.mirror, attachments) {
		if va.Name == claim.AttachmentName(handle, driverName, va.Spec.NodeName) {
			found = append(found, va)
		}
	}
	return found
}
