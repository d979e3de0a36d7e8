package lifecycle_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func TestReclaimDue_everyCase(t *testing.T) {
	const none, protect, release, remove = lifecycle.DueNothing, lifecycle.DueProtect, lifecycle.DueRelease, lifecycle.DueDelete
	// By phase: with the finalizer, without it, being deleted with it, and without it.
	deleted := map[corev1.PersistentVolumePhase][4]lifecycle.Due{
		corev1.VolumeBound: {none, protect, none, none}, corev1.VolumeReleased: {remove, remove, remove, none},
		corev1.VolumeAvailable: {}, corev1.VolumeFailed: {}, corev1.VolumePending: {}, "": {},
	}
	for phase, want := range deleted {
		for i, row := range []struct{ protected, ending bool }{{true, false}, {false, false}, {true, true}, {false, true}} {
			pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: phase}}
			if row.protected {
				pv.Finalizers = []string{"other", claim.ProvisionerFinalizer}
			}
			if row.ending {
				pv.DeletionTimestamp = &metav1.Time{}
			}
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			if got := lifecycle.ReclaimDue(pv); got != want[i] {
				t.Errorf("Delete, %s, %+v: %s, want %s", phase, row, got, want[i])
			}
			for _, policy := range []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimRecycle} {
				pv.Spec.PersistentVolumeReclaimPolicy = policy
				if got := lifecycle.ReclaimDue(pv); (got == release) != row.protected || !row.protected && got != none {
					t.Errorf("%s, %s, %+v: %s", policy, phase, row, got)
				}
			}
		}
	}
}

func TestFindTwin(t *testing.T) {
	pv := volume("a", "d", "v")
	released := volume("released", "d", "v")
	released.Status.Phase, released.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete
	retained := released.DeepCopy()
	retained.Name, retained.Spec.PersistentVolumeReclaimPolicy = "retained", corev1.PersistentVolumeReclaimRetain
	away := volume("away", "d", "v")
	elsewhere := func(pv *corev1.PersistentVolume) bool { return pv.Name == "away" }
	for want, all := range map[string][]*corev1.PersistentVolume{
		"":         {pv, released, away, volume("b", "e", "v"), volume("c", "d", "w"), {}},
		"bound":    {pv, released, volume("bound", "d", "v")},
		"retained": {pv, away, retained},
	} {
		if got := lifecycle.FindTwin(slices.Values(all), pv, elsewhere); got != want {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}
