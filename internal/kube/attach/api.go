package attach

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// The fields of a VolumeAttachment's status that hold errors.
const (
	attachError = "attachError"
	detachError = "detachError"
)

// patchStatus merges into the status of an attachment.
func (c *Controller) patchStatus(ctx context.Context, va *storagev1.VolumeAttachment, status map[string]any) error {
	api := c.env.Core.StorageV1().VolumeAttachments()
	_, err := c.attachments.Merge(ctx, api, va, map[string]any{"status": status}, "status")
	if err != nil {
		return fmt.Errorf("write the status of VolumeAttachment %s: %w", va.Name, err)
	}
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
// queue, or cluster.ErrGone if the attachment is gone, which a failure that is cluster.ErrGone
// says as well.
func (c *Controller) saveError(
	ctx context.Context, va *storagev1.VolumeAttachment, field string, failure error,
) error {
	switch {
	case ctx.Err() != nil, errors.Is(failure, cluster.ErrChanged), errors.Is(failure, failpoint.ErrInjected):
		return failure // as if the process had ended here
	case errors.Is(failure, cluster.ErrGone):
		return failure
	}
	err := c.patchStatus(ctx, va, map[string]any{field: volumeError(failure, metav1.Now())})
	if errors.Is(err, cluster.ErrGone) {
		return err
	}
	return errors.Join(failure, err)
}

func (c *Controller) patchVolume(ctx context.Context, pv *corev1.PersistentVolume, ops []cluster.Op) error {
	_, err := c.volumes.Patch(ctx, c.env.Core.CoreV1().PersistentVolumes(), pv, ops...)
	return err
}
