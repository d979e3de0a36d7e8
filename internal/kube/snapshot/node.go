package snapshot

import (
	"context"
	"errors"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// own labels a content that is this node's by its volume: the volume may go
// while the snapshot stays, and then only the label tells where it is, to the
// node that deletes it and to whoever restores from it.
func (c *Controller) own(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshotContent, error) {
	if c.owner.Labelled(object) || object.DeletionTimestamp != nil {
		return object, nil
	}
	return c.writer.Claim(ctx, object, c.owner.Node())
}

// adopt sees to a content of which nothing says whose it is. A snapshot belongs
// to the node whose driver has it, so all nodes ask theirs.
func (c *Controller) adopt(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (time.Duration, error) {
	switch needed := next(object); {
	case needed == stepNothing:
		return 0, nil
	case needed == stepRelease:
		return c.orphan(ctx, object)
	case wanted(object) == "":
		return c.options.Poll.Max, nil // the PersistentVolume of its volume may come
	}
	here, err := c.here(ctx, object)
	if err != nil || !here {
		return c.options.Poll.Max, err
	}
	if _, err = c.writer.Claim(ctx, object, c.owner.Node()); err != nil {
		return c.outcome(object, err)
	}
	return soon, nil
}

func (c *Controller) here(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (bool, error) {
	offered, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil || !offered.ListSnapshots && !offered.GetSnapshot {
		return false, err
	}
	_, err = c.find(ctx, object, offered)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	return err == nil, err
}

// orphan lets a content go that is nobody's, when it is this node's turn.
func (c *Controller) orphan(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (time.Duration, error) {
	if cluster.RemoveFinalizers(object, c.writer.Keys.Finalizer) == nil {
		return 0, nil
	}
	if left := time.Until(c.owner.OrphanDue(object)); left > 0 {
		return left, nil
	}
	return c.outcome(object, c.writer.Release(ctx, object))
}
