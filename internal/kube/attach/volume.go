package attach

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// finished reports whether the finalizer of a PersistentVolume can be removed once
// the volume has no attachments: the volume is being deleted, or it is an in-tree
// volume again after its migration to CSI was reverted. Any other volume keeps the
// finalizer for the next attachment.
func (c *Controller) finished(pv *corev1.PersistentVolume) bool {
	return c.hasFinalizer(pv) && (pv.DeletionTimestamp != nil || pv.Spec.CSI == nil && !isMigrated(pv))
}

// syncVolume removes the finalizer of a PersistentVolume that is finished and has
// no attachments.
func (c *Controller) syncVolume(ctx context.Context, name string) error {
	pv, found := c.volumes.Get(name)
	if !found || !c.finished(pv) {
		return nil
	}
	attachments := c.attachments.By(cluster.AttachmentByVolume(), name)
	if len(attachments) > 0 {
		return c.recordHandle(ctx, pv, attachments)
	}
	if slices.Contains(pv.Finalizers, claim.ProvisionerFinalizer) {
		// The provisioner still deletes the volume. Its last patch may remove both
		// finalizers; if it removes only its own, that change queues the volume again.
		return nil
	}
	err := c.patchVolume(ctx, pv, cluster.RemoveFinalizers(pv, c.finalizer))
	if err != nil && !errors.Is(err, cluster.ErrGone) {
		return fmt.Errorf("remove the finalizer of PersistentVolume %s: %w", name, err)
	}
	return nil
}

// recordHandle writes the volume's ID on attachments that lack it because
// external-attacher created them. A user may remove the PersistentVolume by force
// before the detachment, and then the ID is known from nowhere else.
func (c *Controller) recordHandle(
	ctx context.Context, pv *corev1.PersistentVolume, attachments []*storagev1.VolumeAttachment,
) error {
	for _, va := range attachments {
		what := intentOf(va)
		if !c.owns(va) || !c.hasFinalizer(va) || what.handle != "" || what.node == "" || c.serves(pv.Name, &pv.Spec) != nil {
			continue
		}
		what.handle, what.secret = pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.ControllerPublishSecretRef
		api := c.env.Core.StorageV1().VolumeAttachments()
		if _, err := c.attachments.Merge(ctx, api, va, what.patch(va, c.finalizer)); err != nil {
			return fmt.Errorf("record the volume handle in VolumeAttachment %s: %w", va.Name, err)
		}
	}
	return nil
}
