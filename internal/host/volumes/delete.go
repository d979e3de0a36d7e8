package volumes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// deleteWithPod begins the deletion of a generic ephemeral claim whose pod does not
// exist any more, as garbage collection does on a cluster.
func (m *Manager) deleteWithPod(pvc *corev1.PersistentVolumeClaim) (gone bool, err error) {
	owner := metav1.GetControllerOf(pvc)
	if owner == nil || owner.Kind != "Pod" {
		return false, nil
	}
	pod, err := m.podNamed(store.Key(pvc.Namespace, owner.Name))
	if err != nil || pod != nil && pod.UID == owner.UID {
		return false, err
	}
	return true, m.editClaim(pvc, func(current *corev1.PersistentVolumeClaim) {
		if current.DeletionTimestamp == nil {
			now := metav1.Now()
			current.DeletionTimestamp = &now
		}
	})
}

// endClaim completes the deletion of a claim: when no pod uses it, the claim is removed,
// and its volume is released.
func (m *Manager) endClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	pods, err := m.usersOf(pvc, podUses(key))
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		// A change of the pod requeues the claim.
		return waitFor(dependencies(dependency(podResource, pods[0])), reasonDeletePending,
			"it is in use by pod %s", strings.Join(pods, ", "))
	}
	others := slices.DeleteFunc(slices.Clone(pvc.Finalizers), func(f string) bool { return f == claimProtection })
	if len(others) > 0 {
		on, released, err := m.releaseSource(key, others)
		if err != nil || released {
			return err // this change requeues the claim
		}
		return waitFor(on, reasonDeletePending, "%s", m.keepers(key, others))
	}
	intent, err := m.intentOf(pvc.UID)
	if err != nil {
		return err
	}
	if intent != nil && pvc.Spec.VolumeName == "" {
		if unmade, err := m.resolveIntent(ctx, intent, pvc); err != nil || !unmade {
			return err
		}
	}
	if err := m.hit("delete/intent"); err != nil {
		return err
	}
	if err := m.release(pvc); err != nil {
		return err
	}
	m.expansions.drop(string(pvc.UID))
	m.modifications.drop(string(pvc.UID))
	return m.hit("delete/released")
}

// usersOf lists the pods that use a claim, of those that have a fact about its name. A
// pod that needs a claim of that name for its own ephemeral volume waits until this one
// is removed, and must not keep it.
func (m *Manager) usersOf(pvc *corev1.PersistentVolumeClaim, fact string) (users []string, err error) {
	named, err := m.index.find(fact)
	if err != nil || len(named) == 0 {
		return nil, err
	}
	err = m.view(func(tx *store.Tx) error {
		for _, key := range named {
			pod, err := tx.Pods().Get(key)
			if err != nil {
				return err
			}
			if pod != nil && usesClaim(pod, pvc) {
				users = append(users, key)
			}
		}
		return nil
	})
	return users, err
}

func usesClaim(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		switch {
		case volume.PersistentVolumeClaim != nil:
			return volume.PersistentVolumeClaim.ClaimName == pvc.Name
		case volume.Ephemeral != nil:
			return claim.EphemeralClaimName(pod.Name, volume.Name) == pvc.Name && claim.OwnsEphemeralClaim(pod, pvc)
		}
		return false
	})
}

// AbandonAnnotation on an object that is being deleted, "true", gives up the calls whose
// outcome the driver does not report: on a claim, the creation of its volume; on a pod,
// the calls that undo the use of its volumes; on a VolumeSnapshotContent, the creation
// of its snapshot. It is for an administrator who has inspected the storage. Abandon
// sets it.
const AbandonAnnotation = "holdfast.dev/abandon-volume"

// resolveIntent repeats the call of an intent whose claim is not desired any more: only
// the answer shows whether there is a volume. unmade reports that there is none, or that
// an administrator gave it up. Otherwise, the volume is recorded now.
func (m *Manager) resolveIntent(
	ctx context.Context, intent *store.Provisioning, pvc *corev1.PersistentVolumeClaim,
) (unmade bool, err error) {
	if pvc.Annotations[AbandonAnnotation] == "true" {
		m.logger.Warn("a volume that may exist is given up, as the claim's annotation says",
			"claim", intent.Claim, "volume", intent.VolumeName, "driver", intent.Driver)
		return true, m.update(func(tx *store.Tx) error { return removeIntent(tx, intent) })
	}
	if err = m.createVolume(ctx, intent, pvc, false); err == nil {
		return false, nil
	}
	remains, reading := m.intentOf(intent.ClaimUID)
	if reading != nil || remains != nil {
		return false, errors.Join(err, reading)
	}
	m.logger.Info("the creation of a volume ended: it does not exist, or another PersistentVolume names it",
		"claim", intent.Claim, "error", err)
	return true, nil
}

// keepers describes the uses that keep a claim.
func (m *Manager) keepers(key string, finalizers []string) string {
	if slices.Contains(finalizers, lifecycle.CloneFinalizer) {
		if copies, err := m.copying(dependency(claimResource, key)); err == nil && copies != "" {
			return "it is being copied for " + copies
		}
	}
	if slices.Contains(finalizers, sourceFinalizer) {
		if snapshots, err := m.index.find(snapshotsOf(key)); err == nil && len(snapshots) > 0 {
			return "a snapshot is being taken of it: VolumeSnapshot " + strings.Join(snapshots, ", ")
		}
	}
	return "it is kept by " + strings.Join(finalizers, ", ")
}

// releaseSource removes the finalizer of a source from a claim of which no snapshot is to
// be taken any more: a snapshot that is deleted before its content is created does not do
// that. on are the snapshots that the claim waits for.
func (m *Manager) releaseSource(key string, finalizers []string) (on []string, released bool, err error) {
	if !slices.Contains(finalizers, sourceFinalizer) {
		return nil, false, nil
	}
	snapshots, err := m.index.find(snapshotsOf(key))
	if err != nil || len(snapshots) == 0 {
		return nil, err == nil, errors.Join(err, m.update(func(tx *store.Tx) error { return unprotectSource(tx, key, "") }))
	}
	for i, snapshot := range snapshots {
		snapshots[i] = dependency(snapshotResource, snapshot)
	}
	return dependencies(snapshots...), false, nil
}

// copying returns the claim to which a source is being copied, "" for none.
func (m *Manager) copying(source string) (target string, err error) {
	err = m.view(func(tx *store.Tx) error {
		intents, err := tx.Provisionings().All()
		for _, intent := range intents {
			if intent.Source == source {
				target = describeClaim(intent.Claim)
			}
		}
		return err
	})
	return target, err
}

// release removes a claim and releases its volume, in one transaction.
func (m *Manager) release(pvc *corev1.PersistentVolumeClaim) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	return m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(key)
		if err != nil || current == nil || current.UID != pvc.UID || current.DeletionTimestamp == nil {
			return err
		}
		pv, err := tx.Volumes().Get(current.Spec.VolumeName)
		if err != nil {
			return err
		}
		if !unprotect(current, claimProtection) {
			return tx.Claims().Put(key, current)
		}
		if pv != nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == current.UID {
			pv.Status.Phase = corev1.VolumeReleased
			if err := tx.Volumes().Put(pv.Name, pv); err != nil {
				return err
			}
		}
		return tx.Claims().Delete(key)
	})
}

// syncAbandoned completes the creation of a volume whose claim does not exist any more.
// The volume is released then, and its reclaim policy decides.
func (m *Manager) syncAbandoned(ctx context.Context, uid string) (again time.Duration, err error) {
	intent, err := m.intentOf(types.UID(uid))
	if err != nil || intent == nil {
		return 0, err
	}
	pvc, err := m.claimOf(intent.Claim)
	if err != nil || pvc != nil && pvc.UID == intent.ClaimUID {
		return 0, err // the claim's controller completes it
	}
	gone := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: intent.ClaimUID}}
	gone.Namespace, gone.Name, _ = splitKey(intent.Claim)
	_, err = m.resolveIntent(ctx, intent, gone)
	return 0, m.explain("provisionings", claimAbout(gone), reasonCleanupFailed, err)
}
