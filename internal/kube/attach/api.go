package attach

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

var (
	// errChanged: the object has changed since the patch was prepared. The next
	// try begins with its new state, so it is not shown to users.
	errChanged = errors.New("the object changed meanwhile")
	// errGone: the VolumeAttachment does not exist any more.
	errGone = errors.New("the VolumeAttachment does not exist any more")
)

// The fields of a VolumeAttachment's status that hold errors.
const (
	attachError = "attachError"
	detachError = "detachError"
)

// patchAttachment changes the object, not its status.
func (c *Controller) patchAttachment(
	ctx context.Context, va *storagev1.VolumeAttachment, kind types.PatchType, patch []byte,
) (*storagev1.VolumeAttachment, error) {
	written, err := c.env.Core.StorageV1().VolumeAttachments().Patch(ctx, va.Name, kind, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, attachmentError(err)
	}
	c.attachments.Wrote(written)
	return written, nil
}

// attachmentError classifies the rejection of a VolumeAttachment's patch. A
// guard that fails is a conflict in a merge patch, and invalid in a JSON patch;
// so is a finalizer on an object that is being deleted.
func attachmentError(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return errGone
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return errors.Join(errChanged, err)
	}
	return err
}

// patchStatus merges into the status of the object with this UID: another object of
// the same name has another UID, which a patch cannot change.
func (c *Controller) patchStatus(ctx context.Context, va *storagev1.VolumeAttachment, status map[string]any) error {
	patch := cluster.MergePatch(map[string]any{"metadata": map[string]any{"uid": va.UID}, "status": status})
	api := c.env.Core.StorageV1().VolumeAttachments()
	written, err := api.Patch(ctx, va.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("write the status of VolumeAttachment %s: %w", va.Name, err)
	}
	c.attachments.Wrote(written)
	return nil
}

// saveAttached writes into the status that the volume is attached.
func (c *Controller) saveAttached(
	ctx context.Context, va *storagev1.VolumeAttachment, publishContext map[string]string,
) error {
	return c.patchStatus(ctx, va, attachedStatus(va, publishContext))
}

// saveError writes a failure into the attachment's status, from which the
// attach/detach controller makes the pod's event. It returns the failure for the
// queue, or nil if no retry is needed.
func (c *Controller) saveError(ctx context.Context, va *storagev1.VolumeAttachment, field string, failure error) error {
	switch {
	case ctx.Err() != nil, errors.Is(failure, errChanged), errors.Is(failure, failpoint.ErrInjected):
		return failure // as if the process had ended here
	case errors.Is(failure, errGone):
		return nil
	}
	err := c.patchStatus(ctx, va, map[string]any{field: volumeError(failure, metav1.Now())})
	if errors.Is(err, errGone) {
		return nil
	}
	return errors.Join(failure, err)
}

func (c *Controller) patchVolume(ctx context.Context, pv *corev1.PersistentVolume, ops []cluster.Op) error {
	patch := cluster.JSONPatch(append([]cluster.Op{cluster.Test(pv.UID, "metadata", "uid")}, ops...)...)
	written, err := c.env.Core.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return errors.Join(errChanged, err)
	case err != nil:
		return err
	}
	c.volumes.Wrote(written)
	return nil
}
