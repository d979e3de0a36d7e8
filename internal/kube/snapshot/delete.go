package snapshot

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// delete deletes the driver's snapshot and forgets it. The state in the API
// server decides: an administrator who has just set the policy to Retain means it.
func (c *Controller) delete(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshotContent, error) {
	object, err := c.writer.Recheck(ctx, object, is(stepDelete))
	if err != nil {
		return object, err
	}
	if err := c.call(ctx, object); err != nil {
		return object, c.writer.Undeleted(ctx, object, reasonDelete, "snapshot", err)
	}
	if err := c.env.Failpoints.Hit("snapshot/deleted"); err != nil {
		return object, err
	}
	object, err = c.writer.Status(ctx, object, is(stepDelete), map[string]any{
		"snapshotHandle": nil, "readyToUse": nil, "creationTime": nil, "restoreSize": nil,
	})
	if err != nil {
		return object, c.writer.Undeleted(ctx, object, reasonDelete, "snapshot", err)
	}
	if err := c.env.Failpoints.Hit("snapshot/cleared"); err != nil {
		return object, err
	}
	return object, c.writer.Release(ctx, object)
}

func (c *Controller) call(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) error {
	secrets, err := content.DeletionSecret(ctx, c.env, c.writer.Keys, object.Annotations)
	if err != nil {
		return err
	}
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.DeleteSnapshot(bounded, &csi.DeleteSnapshotRequest{SnapshotId: handleOf(object), Secrets: secrets})
}
