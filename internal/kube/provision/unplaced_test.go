package provision

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

func anyMode(pv *corev1.PersistentVolume) {
	pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
}

// TestNode_reclaimsAVolumeWithoutAffinityThatItsDriverHas: an administrator wrote
// its PersistentVolume, and nothing in it says where the volume is.
func TestNode_reclaimsAVolumeWithoutAffinityThatItsDriverHas(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1")
	w.Driver.AddVolume("id-pvc-uid-here", 1<<30)
	w.Add(newVolume("here", released, anyMode), newVolume("elsewhere", released, anyMode))
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

// TestNode_completesTheDeletionOfAVolumeWithoutAffinity: the process ends after DeleteVolume. The
// driver of no node has the volume any more.
func TestNode_completesTheDeletionOfAVolumeWithoutAffinity(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2")
	w.Driver.AddVolume("id-pvc-uid-a", 1<<30)
	w.crashAs("delete/called", onNodes("n1"), func() { w.Add(newVolume("a", released, anyMode)) })
	if pv := w.pv("pvc-uid-a"); pv == nil || pv.Annotations[claim.DeletingNodeAnnotation] != "n1" {
		t.Errorf("the PersistentVolume: %v", pv)
	}
	w.onItsOwn("n2")
	w.Never(100*time.Millisecond, func() error {
		if w.pv("pvc-uid-a") == nil {
			return errors.New("another node has deleted it")
		}
		return nil
	})
	w.onItsOwn("n1")
	w.gone()
}
