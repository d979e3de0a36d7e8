package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// syncDetach undoes an attachment that is being deleted, and lets it go. The
// finalizer is taken off after the driver has said that the volume is
// unpublished, never before.
func (c *Controller) syncDetach(ctx context.Context, key string) error {
	done, mine := c.turns.take(key, func() { c.detaching.Add(key) })
	if !mine {
		return nil // comes again
	}
	defer done()
	va, found := c.attachments.Get(key)
	if !found || !c.owns(va) || va.DeletionTimestamp == nil || !c.holds(va) && !c.forced.is(va.UID) {
		return nil // without the finalizer nothing was published
	}
	if err := c.unpublish(ctx, va); err != nil {
		return c.saveError(ctx, va, detachError, err)
	}
	if err := c.env.Failpoints.Hit("detach/unpublished"); err != nil {
		return err
	}
	if err := c.release(ctx, va); err != nil {
		return err
	}
	c.forced.set(va.UID, false)
	return nil
}

// unpublish calls the driver, unless it is one that has nothing to detach: it
// may have had when the finalizer was written.
func (c *Controller) unpublish(ctx context.Context, va *storagev1.VolumeAttachment) error {
	can, err := c.capabilities(ctx)
	if err != nil || !can.Attach {
		return err
	}
	what, err := c.published(va)
	if err != nil {
		return err
	}
	return c.callUnpublish(ctx, va, what)
}

// published says what is to be undone. What stands on the attachment was
// written before the driver was called, and comes first: the volume or the node
// may be gone, or have come back under its name as another one. Attachments
// that external-attacher made name the node only.
func (c *Controller) published(va *storagev1.VolumeAttachment) (record, error) {
	what := recordOf(va)
	if what.handle == "" {
		volume, err := c.subjectOf(va)
		if errors.Is(err, errNoVolume) {
			return record{}, fmt.Errorf("PersistentVolume %s is gone, and the VolumeAttachment does not say which volume it was: detach it from node %s at the storage system, then take the finalizer %s off the VolumeAttachment", volumeName(va), va.Spec.NodeName, c.finalizer)
		}
		if err != nil {
			return record{}, err
		}
		what.handle, what.secret = volume.csi().VolumeHandle, volume.csi().ControllerPublishSecretRef
	}
	if what.node == "" {
		node, err := c.registeredID(va)
		if err != nil {
			return record{}, err
		}
		what.node = node
	}
	return what, nil
}

func (c *Controller) callUnpublish(ctx context.Context, va *storagev1.VolumeAttachment, what record) error {
	secrets, err := c.env.Secret(ctx, what.secret)
	switch {
	case apierrors.IsNotFound(err) && !lifecycle.WithoutSecret(va.Annotations):
		return fmt.Errorf("the secret for ControllerUnpublishVolume is missing: %w; create it again, or annotate the VolumeAttachment with %s=true to detach without it",
			err, claim.DeleteWithoutSecretAnnotation)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: what.handle, NodeId: what.node, Secrets: secrets})
}

// release takes the finalizer off, with which the object usually goes: its
// status is of no interest then. Only if others hold it, it says that the
// volume is detached.
func (c *Controller) release(ctx context.Context, va *storagev1.VolumeAttachment) error {
	left := va
	if ops := cluster.RemoveFinalizers(va, c.finalizer); ops != nil {
		ops = append([]cluster.Op{cluster.Test(va.UID, "metadata", "uid")}, ops...)
		written, err := c.patchAttachment(ctx, va, types.JSONPatchType, cluster.JSONPatch(ops...))
		if errors.Is(err, errGone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("let VolumeAttachment %s go: %w", va.Name, err)
		}
		left = written
	}
	if len(left.Finalizers) == 0 {
		return nil
	}
	err := c.patchStatus(ctx, left, map[string]any{"attached": false, "attachmentMetadata": nil, detachError: nil})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}
