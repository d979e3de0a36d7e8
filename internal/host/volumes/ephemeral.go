package volumes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// EnsureEphemeral creates the claims of a pod's generic ephemeral volumes (KEP 1698),
// owned by the pod, so that they are deleted with it. A claim of that name which was not
// created for this pod is never adopted: the pod waits.
func (m *Manager) EnsureEphemeral(ctx context.Context, pod *corev1.Pod) error {
	m = m.as(ctx)
	if pod.DeletionTimestamp != nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Ephemeral == nil {
			continue
		}
		if err := m.ensureEphemeral(pod, &pod.Spec.Volumes[i]); err != nil {
			return fmt.Errorf("volume %q: %w", pod.Spec.Volumes[i].Name, err)
		}
	}
	return nil
}

func (m *Manager) ensureEphemeral(pod *corev1.Pod, volume *corev1.Volume) error {
	made, err := ephemeralClaim(pod, volume)
	if err != nil {
		return err
	}
	key := store.KeyOf(made)
	known, err := m.claimOf(key)
	if err != nil {
		return err
	}
	if known == nil {
		if err := m.hit("ephemeral/intent"); err != nil {
			return err
		}
		if known, err = m.addClaim(pod, made); err != nil {
			return err
		}
	}
	switch {
	case !claim.OwnsEphemeralClaim(pod, known):
		return waitingFor("PersistentVolumeClaim", key, "%s was not created for pod %q (the pod is not its owner); "+
			"delete or rename the claim, or rename the pod or the volume",
			describeClaim(key), store.KeyOf(pod))
	case known.DeletionTimestamp != nil:
		return waitingFor("PersistentVolumeClaim", key, "%s of this pod is being deleted", describeClaim(key))
	}
	return nil
}

// addClaim stores the claim if the pod still exists, and returns the claim that has the
// name then.
func (m *Manager) addClaim(
	pod *corev1.Pod, made *corev1.PersistentVolumeClaim,
) (known *corev1.PersistentVolumeClaim, err error) {
	key := store.KeyOf(made)
	err = m.update(func(tx *store.Tx) error {
		if known, err = tx.Claims().Get(key); err != nil || known != nil {
			return err
		}
		current, err := tx.Pods().Get(store.KeyOf(pod))
		if err != nil {
			return err
		}
		if current == nil || current.UID != pod.UID {
			return fmt.Errorf("pod %q is gone", store.KeyOf(pod))
		}
		known = made
		return tx.Claims().Put(key, made)
	})
	return known, err
}

func ephemeralClaim(pod *corev1.Pod, volume *corev1.Volume) (*corev1.PersistentVolumeClaim, error) {
	template := volume.Ephemeral.VolumeClaimTemplate
	if template == nil {
		return nil, fmt.Errorf("ephemeral.volumeClaimTemplate is missing")
	}
	yes := true
	filesystem := corev1.PersistentVolumeFilesystem
	made := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.EphemeralClaimName(pod.Name, volume.Name), Namespace: pod.Namespace, UID: uuid.NewUUID(),
			Labels: template.Labels, Annotations: template.Annotations, Generation: 1,
			CreationTimestamp: metav1.NewTime(time.Now().Truncate(time.Second)), Finalizers: []string{claimProtection},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		Spec:   *template.Spec.DeepCopy(),
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	if made.Spec.VolumeMode == nil {
		made.Spec.VolumeMode = &filesystem
	}
	return made, nil
}
