package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// DeleteClaim deletes a claim, and its volume unless the reclaim policy is
// Retain. The intent is durable: what a crash cuts off, Recover finishes. A
// claim that does not exist is no error.
func (m *Manager) DeleteClaim(ctx context.Context, key string) error {
	unlock, err := m.lock(ctx, "claim "+key)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := m.boundClaim(key)
	if errors.Is(err, ErrNoClaim) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.volume != nil {
		user, err := m.inUse(found.volume.Spec.CSI.Driver, found.volume.Spec.CSI.VolumeHandle)
		if err != nil {
			return err
		}
		if user != "" {
			return fmt.Errorf("%s is in use by %s", claim.Describe(found.claim), user)
		}
	}
	if err := m.markDeleted(found); err != nil {
		return err
	}
	if err := m.hit("delete/intent"); err != nil {
		return err
	}
	return m.finishDelete(ctx, found)
}

// markDeleted writes the intent to delete.
func (m *Manager) markDeleted(found bound) error {
	now := metav1.Now()
	if found.claim.DeletionTimestamp == nil {
		found.claim.DeletionTimestamp = &now
	}
	return m.update(func(tx *store.Tx) error {
		if found.volume != nil {
			found.volume.Status.Phase = corev1.VolumeReleased
			if err := tx.Volumes().Put(found.volume.Name, found.volume); err != nil {
				return err
			}
		}
		return tx.Claims().Put(store.Key(found.claim.Namespace, found.claim.Name), found.claim)
	})
}

func (m *Manager) finishDelete(ctx context.Context, found bound) error {
	key := store.Key(found.claim.Namespace, found.claim.Name)
	if found.volume == nil {
		volume, err := m.findUnrecorded(ctx, found.claim)
		if err != nil {
			return err
		}
		found.volume = volume
	}
	retain := found.volume != nil && found.volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	if found.volume != nil && !retain {
		if err := m.deleteVolume(ctx, claimLabel(key), found.volume); err != nil {
			return err
		}
	}
	if err := m.hit("delete/called"); err != nil {
		return err
	}
	return m.update(func(tx *store.Tx) error {
		if found.volume != nil && !retain {
			if err := tx.Volumes().Delete(found.volume.Name); err != nil {
				return err
			}
		}
		return errors.Join(tx.Claims().Delete(key), tx.Provisionings().Delete(string(found.claim.UID)))
	})
}

// findUnrecorded learns whether a creation that was cut off made a volume: only
// the same request again can tell. A final error says that there is none.
func (m *Manager) findUnrecorded(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (volume *corev1.PersistentVolume, err error) {
	var record *store.Provisioning
	err = m.view(func(tx *store.Tx) error {
		record, err = tx.Provisionings().Get(string(pvc.UID))
		return err
	})
	if err != nil || record == nil {
		return nil, err
	}
	label := claimLabel(record.Claim)
	err = m.step(ctx, label, StepCreate, m.onward(claim.CallCreate), func(ctx context.Context) (string, error) {
		volume, err = m.create(ctx, record, pvc)
		if err != nil && claim.Classify(claim.CallCreate, err) != claim.OutcomeUncertain {
			m.logger.Info("a volume that was being made does not exist", "claim", record.Claim, "error", err)
			return "there is none", nil
		}
		return "found", err
	})
	return volume, err
}

func (m *Manager) deleteVolume(ctx context.Context, label string, volume *corev1.PersistentVolume) error {
	source := volume.Spec.CSI
	return m.step(ctx, label, StepDelete, m.back(), func(ctx context.Context) (string, error) {
		driver, err := m.options.Drivers.Driver(source.Driver)
		if err != nil {
			return "", err
		}
		return source.VolumeHandle, driver.Client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: source.VolumeHandle})
	})
}
