package provision

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// markSaving records, before the first try to create the PersistentVolume, that it
// may exist from now on. Many claims share the write.
func (c *Controller) markSaving(ctx context.Context, left record) (record, error) {
	if !left.Unsaved {
		return left, nil
	}
	left.Unsaved = false
	uid := left.Volume.Spec.ClaimRef.UID
	if err := c.intents.Put(ctx, string(uid), left); err != nil {
		return left, fmt.Errorf("volume %q is made; record that its PersistentVolume follows: %w", left.Volume.Name, err)
	}
	c.progress.note(uid, func(s *step) { s.refused = true })
	return left, c.hit("create/saving")
}

// maySaved reports whether the PersistentVolume of an intent may have existed. Then
// its absence proves nothing: an administrator may have set its policy to Retain
// and deleted it. The volume may hold data, and the intent never leads to DeleteVolume.
func (c *Controller) maySaved(left record) bool {
	return !left.Unsaved && !c.progress.of(left.Volume.Spec.ClaimRef.UID).refused
}

// definitelyRefused reports whether an error of a creation proves that the API
// server created nothing.
func definitelyRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsAlreadyExists(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// bound ends an intent whose claim is bound to its PersistentVolume, which was
// deleted since: to create it again would overrule who deleted it.
func (c *Controller) bound(ctx context.Context, pvc *corev1.PersistentVolumeClaim, left record) (ended bool, err error) {
	if pvc == nil || pvc.Spec.VolumeName != left.Volume.Name || !c.maySaved(left) {
		return false, nil
	}
	_, err = c.env.Core.CoreV1().PersistentVolumes().Get(ctx, left.Volume.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.finish(pvc, left, nil)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("is there a PersistentVolume %q: %w", left.Volume.Name, err)
	}
	return false, nil
}

// retain creates the PersistentVolume of a lost claim with policy Retain and ends
// the intent: an administrator sees the volume and decides about it.
func (c *Controller) retain(ctx context.Context, pvc *corev1.PersistentVolumeClaim, left record, request *csi.CreateVolumeRequest, volume *csi.Volume) error {
	kept := left
	kept.Volume = left.Volume.DeepCopy()
	kept.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	kept.Volume.Finalizers = slices.DeleteFunc(kept.Volume.Finalizers, func(f string) bool { return f == claim.ProvisionerFinalizer })
	if err := c.save(ctx, kept, request, volume); err != nil {
		return err
	}
	c.warn(left.claimStub(), reasonRetained,
		"PersistentVolume %q of volume %q may have existed and been deleted while the provisioner was down; it is created with policy Retain; delete it to keep the volume alone, or set its policy to Delete to delete both",
		left.Volume.Name, volume.GetVolumeId())
	c.end(pvc, left)
	return nil
}

// leftAlone explains that a volume which cannot be used is not deleted.
func leftAlone(wrong error, left record, handle string) error {
	return fmt.Errorf("%w; volume %q is not deleted, since PersistentVolume %q may have existed and the volume may hold data", wrong, handle, left.Volume.Name)
}
