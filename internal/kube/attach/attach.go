package attach

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// syncAttach makes an attachment attached. Any number of repetitions, with a
// crash between any two lines, gives the same: the finalizers and the record
// are written before the driver is called, and the call is idempotent.
func (c *Controller) syncAttach(ctx context.Context, key string) error {
	done, mine := c.turns.take(key, func() { c.attaching.Add(key) })
	if !mine {
		return nil // comes again
	}
	defer done()
	va, found := c.attachments.Get(key)
	if !found || !c.owns(va) || va.DeletionTimestamp != nil || va.Status.Attached && !c.forced.is(va.UID) {
		return nil
	}
	can, err := c.capabilities(ctx)
	if err != nil {
		return c.saveError(ctx, va, attachError, err)
	}
	if !can.Attach {
		return c.saveAttached(ctx, va, nil) // the driver has nothing to do: acknowledge
	}
	intent, publishContext, err := c.publish(ctx, va, can)
	if err != nil {
		return c.saveError(ctx, va, attachError, err)
	}
	if err := c.env.Failpoints.Hit("attach/published"); err != nil {
		return err
	}
	err = c.saveAttached(ctx, va, publishContext)
	if errors.Is(err, errGone) {
		// It was removed by force, finalizer and all, while the driver published
		// it. Nobody else knows of that any more.
		return c.callUnpublish(ctx, va, intent)
	}
	if err == nil {
		c.forced.set(va.UID, false)
	}
	return err
}

func (c *Controller) capabilities(ctx context.Context) (client.ControllerCapabilities, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerCapabilities(ctx)
}

// publish does all of attaching but the status. What can be wrong with the
// objects is found before anything is written.
func (c *Controller) publish(ctx context.Context, va *storagev1.VolumeAttachment, can client.ControllerCapabilities) (record, map[string]string, error) {
	volume, err := c.subjectOf(va)
	if err != nil {
		return record{}, nil, err
	}
	if volume.pv != nil && volume.pv.DeletionTimestamp != nil {
		return record{}, nil, fmt.Errorf("PersistentVolume %s is being deleted", volume.pv.Name)
	}
	node, err := c.registeredID(va)
	if err != nil {
		return record{}, nil, err
	}
	request, err := c.request(volume, node, can)
	if err != nil {
		return record{}, nil, err
	}
	if request.Secrets, err = c.env.Secret(ctx, volume.csi().ControllerPublishSecretRef); err != nil {
		return record{}, nil, err
	}
	if err := c.protectVolume(ctx, volume.pv); err != nil {
		return record{}, nil, err
	}
	if err := c.env.Failpoints.Hit("attach/protected"); err != nil {
		return record{}, nil, err
	}
	intent := record{node: node, handle: volume.csi().VolumeHandle, secret: volume.csi().ControllerPublishSecretRef}
	if err := c.recordIntent(ctx, va, intent); err != nil {
		return record{}, nil, err
	}
	if err := c.env.Failpoints.Hit("attach/finalizer"); err != nil {
		return record{}, nil, err
	}
	publishContext, err := c.callPublish(ctx, request)
	return intent, publishContext, err
}

// callPublish does not ask what an error says of the effect. The finalizer is the
// intent, and it stays until ControllerUnpublishVolume succeeds, which is safe to
// call for a volume that was not published. An earlier call may have published it
// whatever the last one answered.
func (c *Controller) callPublish(ctx context.Context, request *csi.ControllerPublishVolumeRequest) (map[string]string, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	publishContext, err := c.env.CSI.ControllerPublishVolume(ctx, request)
	if err != nil {
		return nil, err
	}
	if size := sizeOf(publishContext); size > maximumContext {
		return nil, fmt.Errorf("driver %s: ControllerPublishVolume %s: the publish context has %d bytes, and Kubernetes stores at most %d", c.env.Driver, request.GetVolumeId(), size, maximumContext)
	}
	return publishContext, nil
}

// protectVolume puts the finalizer on the PersistentVolume: the volume is not
// to go while an attachment needs its handle.
func (c *Controller) protectVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv == nil || c.holds(pv) {
		return nil
	}
	if err := c.patchVolume(ctx, pv, cluster.AddFinalizers(pv, c.finalizer)); err != nil {
		return fmt.Errorf("protect PersistentVolume %s by a finalizer: %w", pv.Name, err)
	}
	return nil
}

// recordIntent writes, in one patch, the finalizer and what is to be undone.
func (c *Controller) recordIntent(ctx context.Context, va *storagev1.VolumeAttachment, intent record) error {
	before := recordOf(va)
	switch {
	case c.holds(va) && before.handle != "" && before.handle != intent.handle:
		return fmt.Errorf("the attachment is of volume %s, but PersistentVolume %s now is volume %s: delete the VolumeAttachment", before.handle, volumeName(va), intent.handle)
	case c.holds(va) && intent.writtenOn(va):
		return nil
	case c.holds(va) && before.node != "" && before.node != intent.node:
		// The node came back under its name with another identity. What was
		// published to the old one is undone while the record still names it.
		old := record{node: before.node, handle: intent.handle, secret: intent.secret}
		if err := c.callUnpublish(ctx, va, old); err != nil {
			return fmt.Errorf("detach from %s, as node %s was called before: %w", before.node, va.Spec.NodeName, err)
		}
	}
	// The version that the patch names is one that is not deleted.
	if _, err := c.patchAttachment(ctx, va, types.MergePatchType, cluster.MergePatch(intent.patch(va, c.finalizer))); err != nil {
		return fmt.Errorf("record in the VolumeAttachment what is to be detached: %w", err)
	}
	return nil
}
