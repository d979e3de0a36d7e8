package volumes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func ephemeralPod(name, volume, uid string) *corev1.Pod {
	fast := "fast"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &fast, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: sizeList("1Gi")},
				},
			}},
		}}}},
	}
}

// A pod that was made again, or that another pod's volume has the name of,
// waits for the claim to go, and so must not be what keeps it (KEP 1698).
func TestEphemeral_aClaimDoesNotWaitForThePodThatWaitsForIt(t *testing.T) {
	for name, next := range map[string]*corev1.Pod{
		"the same name":       ephemeralPod("a", "b-c", "pod-a-2"),
		"another of the name": ephemeralPod("a-b", "c", "pod-a-b"),
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			first := ephemeralPod("a", "b-c", "pod-a-1")
			d.put(func(tx *store.Tx) error { return tx.Pods().Put("ns/a", first) })
			if err := d.manager.EnsureEphemeral(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			d.isBound("ns/a-b-c")
			d.put(func(tx *store.Tx) error {
				if err := tx.Pods().Delete("ns/a"); err != nil {
					return err
				}
				return tx.Pods().Put(store.KeyOf(next), next)
			})
			d.isGone(claimResource, "ns/a-b-c")
			d.hasVolumes(0)
			if err := d.manager.EnsureEphemeral(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			d.isBound("ns/a-b-c")
		})
	}
}
