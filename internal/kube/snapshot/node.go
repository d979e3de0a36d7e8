package snapshot

import (
	"context"
	"errors"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// adopt sees to a content of which nothing says whose it is. A snapshot belongs
// to the node whose driver has it, so all nodes ask theirs.
func (c *Controller) adopt(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (time.Duration, error) {
	switch needed := next(object); {
	case needed == stepNothing:
		return 0, nil
	case needed == stepRelease:
		after, err := c.writer.Orphan(ctx, object, c.owner)
		return content.Outcome(err, after)
	case wanted(object) == "":
		return c.options.Poll.Max, nil // the PersistentVolume of its volume may come
	}
	here, err := c.here(ctx, object)
	if err != nil || !here {
		return c.options.Poll.Max, err
	}
	_, err = c.writer.Claim(ctx, object, c.owner)
	return content.Outcome(err, content.Soon)
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
