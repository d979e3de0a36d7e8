package host

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Deleted is what became of one object.
type Deleted struct {
	Kind, Name string
	// Absent: there was none.
	Absent bool
	// Retained is the volume that stays because its reclaim policy is Retain.
	Retained string
}

// Delete removes the claims, with their volumes, and then the other objects. An
// object that does not exist is no error.
func (h *Host) Delete(ctx context.Context, objects *manifest.Objects) ([]Deleted, error) {
	needed, err := h.driversOf(objects.Claims)
	if err != nil {
		return nil, err
	}
	if err := h.startDrivers(ctx, needed); err != nil {
		return nil, err
	}
	deleted := make([]Deleted, len(objects.Claims))
	var work []func() error
	for i, pvc := range objects.Claims {
		work = append(work, func() (err error) {
			deleted[i], err = h.deleteClaim(ctx, claimKey(pvc))
			return err
		})
	}
	if err := atOnce(work); err != nil {
		return nil, err
	}
	return deleted, h.forget(objects)
}

func (h *Host) deleteClaim(ctx context.Context, key string) (Deleted, error) {
	result := Deleted{Kind: "PersistentVolumeClaim", Name: key}
	err := h.store.View(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil || pvc == nil {
			result.Absent = true
			return err
		}
		volume, err := tx.Volumes().Get(pvc.Spec.VolumeName)
		if volume != nil && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			result.Retained = volume.Spec.CSI.VolumeHandle
		}
		return err
	})
	if err != nil || result.Absent {
		return result, err
	}
	return result, h.volumes.DeleteClaim(ctx, key)
}

// driversOf returns the drivers of claims that have, or may have, a volume.
func (h *Host) driversOf(claims []*corev1.PersistentVolumeClaim) (map[string]string, error) {
	needed := map[string]string{}
	err := h.store.View(func(tx *store.Tx) error {
		for _, given := range claims {
			pvc, err := tx.Claims().Get(claimKey(given))
			if err != nil {
				return err
			}
			if pvc == nil {
				continue
			}
			volume, err := tx.Volumes().Get(pvc.Spec.VolumeName)
			if err != nil {
				return err
			}
			record, err := tx.Provisionings().Get(string(pvc.UID))
			switch {
			case err != nil:
				return err
			case volume != nil:
				needed[volume.Spec.CSI.Driver] = claim.Describe(pvc)
			case record != nil:
				needed[record.Driver] = claim.Describe(pvc)
			}
		}
		return nil
	})
	return needed, err
}

// forget removes the objects that are nothing but text.
func (h *Host) forget(objects *manifest.Objects) error {
	err := h.store.Update(func(tx *store.Tx) error {
		var failed []error
		for _, given := range plainOf(objects) {
			if given.Kind.Kind != "Namespace" { // others may be in it
				failed = append(failed, tx.Objects(given.Kind).Delete(given.Key))
			}
		}
		return errors.Join(failed...)
	})
	if err != nil {
		return fmt.Errorf("remove the objects: %w", err)
	}
	return nil
}
