package attach

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// finished tells whether the finalizer on a PersistentVolume waits for nothing
// but its attachments to go: the volume is being deleted, or it is an in-tree
// one again after its migration to CSI was taken back. On any other it stays,
// for the next attachment.
func (c *Controller) finished(pv *corev1.PersistentVolume) bool {
	return c.holds(pv) && (pv.DeletionTimestamp != nil || pv.Spec.CSI == nil && !isMigrated(pv))
}

// syncVolume takes the finalizer off a PersistentVolume that is finished and
// that no attachment needs.
func (c *Controller) syncVolume(ctx context.Context, name string) error {
	pv, found := c.volumes.Get(name)
	if !found || !c.finished(pv) {
		return nil
	}
	attachments := c.attachments.By(cluster.AttachmentByVolume(), name)
	if len(attachments) > 0 {
		return c.rememberVolume(ctx, pv, attachments)
	}
	if slices.Contains(pv.Finalizers, claim.ProvisionerFinalizer) {
		// The provisioner still deletes the volume; its last patch may take both
		// off. If it takes its own only, that change leads here again.
		return nil
	}
	err := c.patchVolume(ctx, pv, cluster.RemoveFinalizers(pv, c.finalizer))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let PersistentVolume %s go: %w", name, err)
	}
	return nil
}

// rememberVolume writes the volume's ID on attachments that do not say it,
// since external-attacher made them: somebody who waits for the
// PersistentVolume may lose patience and remove it by force.
func (c *Controller) rememberVolume(ctx context.Context, pv *corev1.PersistentVolume, attachments []*storagev1.VolumeAttachment) error {
	for _, va := range attachments {
		what := recordOf(va)
		if !c.owns(va) || !c.holds(va) || what.handle != "" || what.node == "" || c.serves(pv.Name, &pv.Spec) != nil {
			continue
		}
		what.handle, what.secret = pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.ControllerPublishSecretRef
		if _, err := c.patchAttachment(ctx, va, types.MergePatchType, cluster.MergePatch(what.patch(va, c.finalizer))); err != nil {
			return fmt.Errorf("record in VolumeAttachment %s which volume it is of: %w", va.Name, err)
		}
	}
	return nil
}
