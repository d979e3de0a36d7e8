package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// syncAttach publishes the volume of an attachment. It can be repeated after a
// crash between any two lines: the finalizers and the intent are written before
// the driver is called, and the call is idempotent.
func (c *Controller) syncAttach(ctx context.Context, key string) error {
	done, ok := c.locks.tryLock(key, func() { c.attaching.Add(key) })
	if !ok {
		return nil // queued again when the other queue is done
	}
	defer done()
	va, found := c.attachments.Get(key)
	if err := c.settleBegun(ctx, key, va, found); err != nil {
		return err
	}
	if !found || !c.toAttach(va) {
		return nil
	}
	va, err := c.confirm(ctx, va)
	if err == nil && c.toAttach(va) {
		err = c.attach(ctx, va)
	}
	if errors.Is(err, cluster.ErrGone) {
		return c.undo(ctx, key)
	}
	return err
}

func (c *Controller) toAttach(va *storagev1.VolumeAttachment) bool {
	return c.owns(va) && va.DeletionTimestamp == nil && (!va.Status.Attached || c.forced.is(va.UID))
}

// attach returns cluster.ErrGone if the attachment is gone.
func (c *Controller) attach(ctx context.Context, va *storagev1.VolumeAttachment) error {
	can, err := c.capabilities(ctx)
	if err != nil {
		return c.saveError(ctx, va, attachError, err)
	}
	if !can.Attach {
		return c.saveAttached(ctx, va, nil) // the driver has nothing to do: acknowledge
	}
	written, publishContext, err := c.publish(ctx, va, can)
	if err != nil {
		return c.saveError(ctx, va, attachError, err)
	}
	if err := c.env.Failpoints.Hit("attach/published"); err != nil {
		return err
	}
	if err := c.saveAttached(ctx, va, publishContext); err != nil {
		return err
	}
	c.begun.remove(va.Name)
	c.forced.set(va.UID, false)
	c.finishTrace(va, written)
	return nil
}

func (c *Controller) capabilities(ctx context.Context) (client.ControllerCapabilities, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerCapabilities(ctx)
}

// publish does all of attaching except writing the status. It validates the
// objects before it writes anything.
func (c *Controller) publish(
	ctx context.Context, va *storagev1.VolumeAttachment, can client.ControllerCapabilities,
) (intent, map[string]string, error) {
	volume, err := c.subjectOf(va)
	if err != nil {
		return intent{}, nil, err
	}
	if volume.pv != nil && volume.pv.DeletionTimestamp != nil {
		return intent{}, nil, fmt.Errorf("PersistentVolume %s is being deleted", volume.pv.Name)
	}
	node, err := c.registeredID(va)
	if err != nil {
		return intent{}, nil, err
	}
	request, err := c.request(volume, node, can)
	if err != nil {
		return intent{}, nil, err
	}
	if request.Secrets, err = c.env.Secret(ctx, volume.csi().ControllerPublishSecretRef); err != nil {
		return intent{}, nil, err
	}
	if err := c.protectVolume(ctx, volume.pv); err != nil {
		return intent{}, nil, err
	}
	if err := c.env.Failpoints.Hit("attach/protected"); err != nil {
		return intent{}, nil, err
	}
	desired := intent{node: node, handle: volume.csi().VolumeHandle, secret: volume.csi().ControllerPublishSecretRef, trace: c.traceOf(va)}
	if err := c.recordIntent(ctx, va, desired); err != nil {
		return intent{}, nil, err
	}
	if err := c.env.Failpoints.Hit("attach/finalizer"); err != nil {
		return intent{}, nil, err
	}
	c.begun.add(va, desired)
	ctx, end := c.env.Tracer.Attempt(ctx, desired.trace, "attempt", attributes(va)...)
	publishContext, err := c.callPublish(ctx, request)
	end(err)
	return desired, publishContext, err
}

// callPublish does not classify the driver's errors. The finalizer stays until
// ControllerUnpublishVolume succeeds, which is safe to call for a volume that was
// not published. An earlier call may have published the volume even if the last
// one failed.
func (c *Controller) callPublish(
	ctx context.Context, request *csi.ControllerPublishVolumeRequest,
) (map[string]string, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	publishContext, err := c.env.CSI.ControllerPublishVolume(ctx, request)
	if err != nil {
		return nil, err
	}
	if size := sizeOf(publishContext); size > maximumContext {
		return nil, fmt.Errorf("driver %s: ControllerPublishVolume %s: the publish context has %d bytes, and Kubernetes stores at most %d",
			c.env.Driver, request.GetVolumeId(), size, maximumContext)
	}
	return publishContext, nil
}

// protectVolume adds the finalizer to the PersistentVolume, so that the object
// exists as long as an attachment needs its volume handle.
func (c *Controller) protectVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv == nil || c.hasFinalizer(pv) {
		return nil
	}
	err := c.patchVolume(ctx, pv, cluster.AddFinalizers(pv, c.finalizer))
	switch {
	case errors.Is(err, cluster.ErrGone): // not cluster.ErrGone: the attachment exists
		return fmt.Errorf("PersistentVolume %s: %w", pv.Name, errNoVolume)
	case err != nil:
		return fmt.Errorf("protect PersistentVolume %s by a finalizer: %w", pv.Name, err)
	}
	return nil
}

// recordIntent writes the finalizer and the intent in one patch.
func (c *Controller) recordIntent(ctx context.Context, va *storagev1.VolumeAttachment, desired intent) error {
	before := intentOf(va)
	switch {
	case c.hasFinalizer(va) && before.handle != "" && before.handle != desired.handle:
		return fmt.Errorf("the attachment is of volume %s, but PersistentVolume %s now is volume %s: "+
			"delete the VolumeAttachment", before.handle, volumeName(va), desired.handle)
	case c.hasFinalizer(va) && desired.writtenOn(va):
		return nil
	case c.hasFinalizer(va) && before.node != "" && before.node != desired.node:
		// The node registered again with another ID. The volume is unpublished from
		// the old ID while the intent still names it.
		old := intent{node: before.node, handle: desired.handle, secret: desired.secret}
		if err := c.callUnpublish(ctx, va, old); err != nil {
			return fmt.Errorf("detach from %s, the previous ID of node %s: %w", before.node, va.Spec.NodeName, err)
		}
	}
	// The patch names a version of the object that is not being deleted.
	api := c.env.Core.StorageV1().VolumeAttachments()
	if _, err := c.attachments.Merge(ctx, api, va, desired.patch(va, c.finalizer)); err != nil {
		return fmt.Errorf("record the intent in the VolumeAttachment: %w", err)
	}
	return nil
}
