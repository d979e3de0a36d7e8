package volumes

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// A volume that one PersistentVolume gives to a single pod is not given to another pod by a
// second PersistentVolume of the same volume.
func TestMount_onePodsVolumeHasOnePodUnderEveryName(t *testing.T) {
	w := newWorld(t)
	key := w.ensured("a", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	})
	second := w.bound(key).volume.DeepCopy()
	w.claim("b", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeName, p.Status.Phase = "second", corev1.ClaimBound
		second.Name, second.UID, second.Spec.AccessModes = "second", "uid-second", p.Spec.AccessModes
		second.Spec.ClaimRef = &corev1.ObjectReference{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	})
	w.put(func(tx *store.Tx) error { return tx.Volumes().Put(second.Name, second) })
	first := pod("web", "a")
	w.mount(first)
	if _, err := w.tryMount(pod("other", "b")); !errors.Is(err, ErrWaiting) {
		t.Errorf("the second pod gets the volume: %v", err)
	}
	if n := w.driver.Count("NodePublishVolume"); n != 1 {
		t.Errorf("published %d times", n)
	}
	w.unmount(first)
}

// A pod that mounts a volume under two names has it alone if one of them says so.
func TestMount_onePodsVolumeHasOnePodUnderItsFirstName(t *testing.T) {
	w := newWorld(t)
	second := w.bound(w.ensured("a")).volume.DeepCopy()
	w.claim("b", func(p *corev1.PersistentVolumeClaim) {
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		p.Spec.VolumeName, p.Status.Phase = "second", corev1.ClaimBound
		second.Name, second.UID, second.Spec.AccessModes = "second", "uid-second", p.Spec.AccessModes
		second.Spec.ClaimRef = &corev1.ObjectReference{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
	})
	w.put(func(tx *store.Tx) error { return tx.Volumes().Put(second.Name, second) })
	both := pod("web", "a")
	w.mount(both) // first, because the volumes of one call are mounted in any order
	more := both.Spec.Volumes[0].DeepCopy()
	more.Name, more.PersistentVolumeClaim.ClaimName = "more", "b"
	both.Spec.Volumes = append(both.Spec.Volumes, *more)
	both.Spec.Containers[0].VolumeMounts = append(both.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "more", MountPath: "/more"})
	w.mount(both)
	if _, err := w.tryMount(pod("other", "a")); !errors.Is(err, ErrWaiting) {
		t.Errorf("the second pod gets the volume: %v", err)
	}
	w.unmount(both)
}
