package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// syncDetach unpublishes the volume of an attachment that is being deleted, and
// then removes the finalizer. It never removes the finalizer before the driver has
// answered that the volume is unpublished.
func (c *Controller) syncDetach(ctx context.Context, key string) error {
	done, ok := c.locks.tryLock(key, func() { c.detaching.Add(key) })
	if !ok {
		return nil // queued again when the other queue is done
	}
	defer done()
	va, found := c.attachments.Get(key)
	if !found || !c.toDetach(va) {
		return nil
	}
	va, err := c.confirm(ctx, va)
	switch {
	case errors.Is(err, cluster.ErrGone):
		return nil
	case err != nil:
		return err
	case !c.toDetach(va):
		return nil
	}
	calling, end := c.env.Tracer.Linked(ctx, intentOf(va).trace, detachOperation, attributes(va)...)
	err = c.unpublish(calling, va)
	end(err)
	if err != nil {
		if err = c.saveError(ctx, va, detachError, err); errors.Is(err, cluster.ErrGone) {
			return nil
		}
		return err
	}
	c.begun.remove(key)
	if err := c.env.Failpoints.Hit("detach/unpublished"); err != nil {
		return err
	}
	if err := c.release(ctx, va); err != nil {
		return err
	}
	c.forced.set(va.UID, false)
	return nil
}

// toDetach: without the finalizer nothing was published.
func (c *Controller) toDetach(va *storagev1.VolumeAttachment) bool {
	return c.owns(va) && va.DeletionTimestamp != nil && !c.released.is(va.UID) && (c.hasFinalizer(va) || c.forced.is(va.UID))
}

// unpublish calls the driver, unless the driver has nothing to detach: its
// capabilities may have changed since the finalizer was written.
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

// published returns the intent to undo. The annotations on the attachment take
// precedence, since they were written before the driver was called: the volume or
// the node may have been deleted, or created again under the same name. Attachments
// that external-attacher created name only the node.
func (c *Controller) published(va *storagev1.VolumeAttachment) (intent, error) {
	what := intentOf(va)
	if what.handle == "" {
		volume, err := c.subjectOf(va)
		if errors.Is(err, errNoVolume) {
			return intent{}, fmt.Errorf("PersistentVolume %s does not exist, and the VolumeAttachment does not name its volume handle: "+
				"detach the volume from node %s at the storage system, then remove the finalizer %s from the VolumeAttachment",
				volumeName(va), va.Spec.NodeName, c.finalizer)
		}
		if err != nil {
			return intent{}, err
		}
		what.handle, what.secret = volume.csi().VolumeHandle, volume.csi().ControllerPublishSecretRef
	}
	if what.node == "" {
		node, err := c.registeredID(va)
		if err != nil {
			return intent{}, err
		}
		what.node = node
	}
	return what, nil
}

func (c *Controller) callUnpublish(ctx context.Context, va *storagev1.VolumeAttachment, what intent) error {
	secrets, err := c.env.Secret(ctx, what.secret)
	switch {
	case apierrors.IsNotFound(err) && !lifecycle.WithoutSecret(va.Annotations):
		return fmt.Errorf("the secret for ControllerUnpublishVolume is missing: %w; "+
			"create it again, or annotate the VolumeAttachment with %s=true to detach without it",
			err, claim.DeleteWithoutSecretAnnotation)
	case err != nil && !apierrors.IsNotFound(err):
		return err
	}
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
		VolumeId: what.handle, NodeId: what.node, Secrets: secrets,
	})
}

// release removes the finalizer, which usually deletes the object. If other
// finalizers keep the object, it writes into the status that the volume is
// detached.
func (c *Controller) release(ctx context.Context, va *storagev1.VolumeAttachment) error {
	current := va
	if ops := cluster.RemoveFinalizers(va, c.finalizer); ops != nil {
		c.released.set(va.UID, true) // before the event of its deletion, which ends that
		written, err := c.attachments.Patch(ctx, c.env.Core.StorageV1().VolumeAttachments(), va, ops...)
		if err != nil || len(written.Finalizers) > 0 {
			c.released.set(va.UID, false)
		}
		if errors.Is(err, cluster.ErrGone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("remove the finalizer of VolumeAttachment %s: %w", va.Name, err)
		}
		current = written
	}
	if len(current.Finalizers) == 0 {
		return nil
	}
	err := c.patchStatus(ctx, current, map[string]any{"attached": false, "attachmentMetadata": nil, detachError: nil})
	if errors.Is(err, cluster.ErrGone) {
		return nil
	}
	return err
}
