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

// endClaim completes the deletion of a claim: when no pod uses
// it, it goes, and its volume is released.
func (m *Manager) endClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	pods, err := m.usersOf(pvc, podUses(key))
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		// A change of the pod brings the claim here again.
		return waitFor(dependencies(dependency("pods", pods[0])), reasonDeletePending, "it is in use by pod %s", strings.Join(pods, ", "))
	}
	if others := slices.DeleteFunc(slices.Clone(pvc.Finalizers), func(f string) bool { return f == claimProtection }); len(others) > 0 {
		return waitFor(nil, reasonDeletePending, "%s", m.keepers(key, others))
	}
	record, err := m.provisioning(pvc.UID)
	if err != nil {
		return err
	}
	if record != nil && pvc.Spec.VolumeName == "" {
		if pvc.Annotations[AbandonAnnotation] == "true" {
			m.logger.Warn("a volume that may exist is given up, as the claim's annotation says", "claim", key, "volume", record.VolumeName, "driver", record.Driver)
			if err := m.update(func(tx *store.Tx) error { return forget(tx, record) }); err != nil {
				return err
			}
			return m.release(pvc)
		}
		// Only the same request, repeated, shows whether there is a volume.
		return m.completeCreation(ctx, record, pvc)
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

// usersOf lists those of the pods that say a fact about a claim's name that use
// this very claim. One that would have a claim of that name for an ephemeral
// volume of its own waits for this one to go: it must not keep it.
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

// AbandonAnnotation on a claim that is being deleted, "true", gives up the
// search for a volume of which the driver never says whether it was made; on a
// pod that is being deleted, the calls that its volumes' drivers do not answer;
// on a VolumeSnapshotContent, the search for a snapshot that may have been taken.
// It is for an administrator who has inspected the storage. Abandon sets it.
const AbandonAnnotation = "holdfast.dev/abandon-volume"

// completeCreation finishes a creation whose claim is being deleted. If no volume was
// made, nothing remains to be done.
func (m *Manager) completeCreation(ctx context.Context, record *store.Provisioning, pvc *corev1.PersistentVolumeClaim) error {
	err := completeRecord(record, pvc)
	if err == nil {
		err = m.finishCreation(ctx, record, pvc, false)
	}
	if err == nil {
		return nil
	}
	left, seeing := m.provisioning(record.ClaimUID)
	if seeing == nil && left == nil {
		m.logger.Info("a volume that was being made does not exist", "claim", record.Claim, "error", err)
		return m.forgetUnmade(pvc)
	}
	return errors.Join(err, seeing)
}

// forgetUnmade writes nothing but a mark that has the claim inspected again.
func (m *Manager) forgetUnmade(pvc *corev1.PersistentVolumeClaim) error {
	if err := m.hit("delete/unmade"); err != nil {
		return err
	}
	return m.release(pvc)
}

// keepers says who keeps a claim.
func (m *Manager) keepers(key string, finalizers []string) string {
	if slices.Contains(finalizers, lifecycle.CloneFinalizer) {
		if who, err := m.copying(dependency(claimResource, key)); err == nil && who != "" {
			return "it is being copied for " + who
		}
	}
	if slices.Contains(finalizers, sourceFinalizer) {
		if snapshots, err := m.index.find(snapshotsOf(key)); err == nil && len(snapshots) > 0 {
			return "a snapshot is being taken of it: VolumeSnapshot " + strings.Join(snapshots, ", ")
		}
	}
	return "it is kept by " + strings.Join(finalizers, ", ")
}

// copying returns the claim to which a source is being copied, "" for none.
func (m *Manager) copying(source string) (who string, err error) {
	err = m.view(func(tx *store.Tx) error {
		records, err := tx.Provisionings().All()
		for _, record := range records {
			if record.Source == source {
				who = describeClaim(record.Claim)
			}
		}
		return err
	})
	return who, err
}

// release ends a claim and releases its volume, in one transaction.
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
		if !letGo(current, claimProtection) {
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

// syncAbandoned finishes the creation of a volume whose claim is gone. The
// volume is released then, and goes the way of its reclaim policy.
func (m *Manager) syncAbandoned(ctx context.Context, uid string) (again time.Duration, err error) {
	record, err := m.provisioning(types.UID(uid))
	if err != nil || record == nil {
		return 0, err
	}
	pvc, err := m.claimOf(record.Claim)
	if err != nil || pvc != nil && pvc.UID == record.ClaimUID {
		return 0, err // the claim looks after it
	}
	gone := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "", Name: record.Claim, UID: record.ClaimUID}}
	gone.Namespace, gone.Name, _ = splitKey(record.Claim)
	err = m.finishCreation(ctx, record, gone, false)
	left, seeing := m.provisioning(record.ClaimUID)
	if seeing == nil && left == nil {
		return 0, nil
	}
	return 0, m.explain("provisionings", claimAbout(gone), reasonCleanupFailed, errors.Join(err, seeing))
}
