package groupsnapshot

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// delete deletes the driver's group snapshot with all its members, and forgets
// it. The state in the API server decides.
func (c *Controller) delete(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*groupv1.VolumeGroupSnapshotContent, error) {
	object, err := c.writer.Recheck(ctx, object, is(stepDelete))
	if err != nil {
		return object, err
	}
	if err := c.call(ctx, object); err != nil {
		return object, c.writer.Undeleted(ctx, object, reasonDelete, "group snapshot", err)
	}
	if err := c.env.Failpoints.Hit("groupsnapshot/deleted"); err != nil {
		return object, err
	}
	object, err = c.writer.Status(ctx, object, is(stepDelete), map[string]any{
		"volumeGroupSnapshotHandle": nil, "readyToUse": nil, "creationTime": nil, "error": nil,
	})
	if err != nil {
		return object, c.writer.Undeleted(ctx, object, reasonDelete, "group snapshot", err)
	}
	if err := c.env.Failpoints.Hit("groupsnapshot/cleared"); err != nil {
		return object, err
	}
	return object, c.writer.Release(ctx, object)
}

func (c *Controller) call(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) error {
	secrets, err := content.DeletionSecret(ctx, c.env, c.writer.Keys, object.Annotations)
	if err != nil {
		return err
	}
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.DeleteVolumeGroupSnapshot(bounded, &csi.DeleteVolumeGroupSnapshotRequest{
		GroupSnapshotId: handleOf(object), SnapshotIds: members(object), Secrets: secrets,
	})
}
