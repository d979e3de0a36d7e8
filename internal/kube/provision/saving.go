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
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// markSaving records, before the first try to create the PersistentVolume, that it
// may exist from now on. Many claims share the write.
func (c *Controller) markSaving(ctx context.Context, intent volumeIntent) (volumeIntent, error) {
	if !intent.Unsaved {
		return intent, nil
	}
	intent.Unsaved = false
	if !c.env.Scope.Central() {
		intent.Node = c.env.Scope.Node // which owns the volume, and completes the intent after a restart
	}
	uid := intent.Volume.Spec.ClaimRef.UID
	// Noted first: the mark may be durable after an error too.
	c.progress.note(uid, func(s *step) { s.refused, s.saving = true, true })
	intent, err := c.intents.Put(ctx, string(uid), intent)
	if err != nil {
		return intent, fmt.Errorf("volume %q is made; record that its PersistentVolume follows: %w", intent.Volume.Name, err)
	}
	return intent, c.hit("create/saving")
}

// maySaved reports whether the PersistentVolume of an intent may have existed. Then
// its absence proves nothing: an administrator may have set its policy to Retain
// and deleted it. The volume may hold data, and the intent never leads to DeleteVolume.
func (c *Controller) maySaved(intent volumeIntent) bool {
	return !intent.Unsaved && !c.progress.of(intent.Volume.Spec.ClaimRef.UID).refused
}

// mayExist notes that a try to create the PersistentVolume had no definite answer.
func (c *Controller) mayExist(intent volumeIntent) {
	c.progress.note(intent.Volume.Spec.ClaimRef.UID, func(s *step) { s.refused = false })
}

// refused reports whether an error of a creation says that the API server did not
// create the object. The client may have repeated the request: only reading the object
// back shows that no earlier try had an effect. After 429 the next try is due.
func refused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	case http.StatusConflict:
		return apierrors.IsAlreadyExists(err)
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// bound ends an intent whose claim is bound to a PersistentVolume of its name that is
// gone, or that is of another volume while that of the intent may have existed.
// Creating the object again would undo what the administrator deleted or replaced.
func (c *Controller) bound(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent,
) (ended bool, err error) {
	if pvc == nil || pvc.Spec.VolumeName != intent.Volume.Name {
		return false, nil
	}
	pv, err := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, intent.Volume.Name, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return false, fmt.Errorf("read PersistentVolume %q: %w", intent.Volume.Name, err)
	case err == nil && c.matches(pv, intent):
		c.finish(pvc, intent, pv, nil)
		return true, nil
	case err == nil && !c.maySaved(intent):
		return false, nil
	}
	c.warn(intent.claimStub(), reasonRetained,
		"the claim is bound to PersistentVolume %q, which does not exist or is of another volume; %s is kept, since it may hold data: "+
			"create a PersistentVolume for it, or delete it in the storage",
		intent.Volume.Name, c.describeMade(intent))
	c.log.WarnContext(ctx, "a volume is kept without a PersistentVolume: create one for it, or delete it in the storage",
		"volume", c.describeMade(intent), "claim", intent.claimKey())
	c.finish(pvc, intent, nil, nil)
	return true, nil
}

// describeMade names the volume of an intent by its handle, as far as that is known.
func (c *Controller) describeMade(intent volumeIntent) string {
	if made := c.progress.of(intent.Volume.Spec.ClaimRef.UID).made; made != nil {
		return fmt.Sprintf("volume %q", made.GetVolumeId())
	}
	return fmt.Sprintf("the volume that the driver made for CreateVolume %q", intent.Volume.Name)
}

// retain creates the PersistentVolume of a lost claim with policy Retain and ends
// the intent: an administrator sees the volume and decides about it.
func (c *Controller) retain(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent, request *csi.CreateVolumeRequest, volume *csi.Volume,
) error {
	kept := intent
	kept.Volume = intent.Volume.DeepCopy()
	kept.Volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	kept.Volume.Finalizers = slices.DeleteFunc(kept.Volume.Finalizers, func(finalizer string) bool {
		return finalizer == claim.ProvisionerFinalizer
	})
	pv, err := c.save(ctx, kept, request, volume)
	if err != nil {
		return err
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		c.warn(intent.claimStub(), reasonRetained,
			"PersistentVolume %q of volume %q may have existed and been deleted while the provisioner was down; "+
				"it exists with policy Retain; delete it to keep the volume alone, or set its policy to Delete to delete both",
			intent.Volume.Name, volume.GetVolumeId())
	} else {
		c.log.InfoContext(ctx, "the volume of a lost claim has its PersistentVolume, whose policy decides",
			"volume", volume.GetVolumeId(), "claim", intent.claimKey(), "policy", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	c.end(pvc, intent)
	return nil
}

// keepUnsaved quarantines the intent of a volume that cannot be used and is not deleted.
func (c *Controller) keepUnsaved(wrong error, intent volumeIntent, handle string) error {
	return refusal{fmt.Errorf("%w; volume %q is not deleted, since PersistentVolume %q may have existed and the volume may hold data: "+
		"create a PersistentVolume for it or delete it in the storage, "+
		"then remove entry %s of the ConfigMaps labelled holdfast.dev/intents in namespace %s",
		wrong, handle, intent.Volume.Name, intent.Volume.Spec.ClaimRef.UID, c.env.Intents), lifecycle.Quarantine}
}
