package provision

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestNode_reclaimsAVolumeWithoutAffinityThatItsDriverHas: an administrator wrote
// its PersistentVolume, and nothing in it says where the volume is.
func TestNode_reclaimsAVolumeWithoutAffinityThatItsDriverHas(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1")
	w.Driver.AddVolume("id-pvc-uid-here", 1<<30)
	modes := func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	w.Add(newVolume("here", released, modes), newVolume("elsewhere", released, modes))
	w.onItsOwn("n1")
	w.Eventually(func() error {
		if w.pv("pvc-uid-here") != nil || len(w.Driver.Volumes()) != 0 {
			return errors.New("the volume of this node is still there")
		}
		return nil
	})
	// DeleteVolume succeeds for a volume that is not there: its object must stay.
	w.Never(100*time.Millisecond, func() error {
		if w.pv("pvc-uid-elsewhere") == nil {
			return errors.New("the PersistentVolume of another node's volume is deleted")
		}
		return nil
	})
}
