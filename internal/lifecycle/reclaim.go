package lifecycle

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Due is the next step for a PersistentVolume, by its own state alone.
type Due int

const (
	// DueNothing: its claim, its administrator or the attacher comes first.
	DueNothing Due = iota
	// DueProtect: add claim.ProvisionerFinalizer.
	DueProtect
	// DueRelease: remove claim.ProvisionerFinalizer, since the volume is retained.
	DueRelease
	// DueDelete: delete the volume, then the object.
	DueDelete
)

func (d Due) String() string { return [...]string{"nothing", "protect", "release", "delete"}[d] }

// ReclaimDue decides about a PersistentVolume by its policy and phase. One that was
// written by hand is served like one that was provisioned (KEP 2644,
// HonorPVReclaimPolicy). If an object without the finalizer is deleted, its volume stays:
// the object may be gone before the driver answers.
func ReclaimDue(pv *corev1.PersistentVolume) Due {
	protected := slices.Contains(pv.Finalizers, claim.ProvisionerFinalizer)
	switch {
	case pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		if protected {
			return DueRelease
		}
	case pv.Status.Phase == corev1.VolumeReleased:
		if protected || pv.DeletionTimestamp == nil {
			return DueDelete
		}
	case pv.Status.Phase == corev1.VolumeBound && pv.DeletionTimestamp == nil && !protected:
		return DueProtect
	}
	return DueNothing
}

// FindTwin finds another PersistentVolume of the same driver's volume, which keeps
// the volume from being deleted; "" without one. An object whose volume is due to be
// deleted too does not keep it: either may come first. elsewhere is as in FindHolder.
func FindTwin(
	volumes iter.Seq[*corev1.PersistentVolume], pv *corev1.PersistentVolume, elsewhere func(*corev1.PersistentVolume) bool,
) string {
	others := func(yield func(*corev1.PersistentVolume) bool) {
		for other := range volumes {
			if other.Name != pv.Name && ReclaimDue(other) != DueDelete && !yield(other) {
				return
			}
		}
	}
	twin := FindHolder(others, pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle, elsewhere)
	if twin.Elsewhere {
		return ""
	}
	return twin.Name
}
