package groupsnapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// look asks about a group snapshot that exists.
func (c *Controller) look(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*groupv1.VolumeGroupSnapshotContent, error) {
	group, err := c.find(ctx, object)
	if err != nil {
		return c.failed(ctx, object, err)
	}
	return c.writer.Status(ctx, object, is(stepLook), taken(object, group))
}

func (c *Controller) find(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*csi.VolumeGroupSnapshot, error) {
	if err := c.able(ctx); err != nil {
		return nil, err
	}
	class, err := c.parse(object)
	if err != nil {
		return nil, err
	}
	reference, err := class.LookSecret(names(object).GroupTokens())
	if err != nil {
		return nil, err
	}
	secrets, err := content.LookSecret(ctx, c.env, reference, c.writer.Keys, object.Annotations)
	if err != nil {
		return nil, err
	}
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	group, err := c.env.CSI.GetVolumeGroupSnapshot(bounded, &csi.GetVolumeGroupSnapshotRequest{
		GroupSnapshotId: wanted(object), SnapshotIds: members(object), Secrets: secrets,
	})
	if err == nil {
		err = check(object, group)
	}
	return group, err
}

// adopt sees to a content of which nothing says whose it is. A group snapshot
// belongs to the node whose driver has it, so all nodes ask theirs.
func (c *Controller) adopt(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (time.Duration, error) {
	switch needed := next(object); {
	case needed == stepNothing:
		return 0, nil
	case needed == stepRelease:
		after, err := c.writer.Orphan(ctx, object, c.owner)
		return content.Outcome(err, after)
	case wanted(object) == "":
		return c.options.Poll.Max, nil // the PersistentVolumes of its volumes may come
	}
	_, err := c.find(ctx, object)
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return c.options.Poll.Max, nil
	case err != nil:
		return 0, fmt.Errorf("VolumeGroupSnapshotContent %s: %w", object.Name, err)
	}
	_, err = c.writer.Claim(ctx, object, c.owner)
	return content.Outcome(err, content.Soon)
}

// refuseSpread tells that a group cannot be snapshotted; no call was made.
func (c *Controller) refuseSpread(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (time.Duration, error) {
	switch next(object) {
	case stepRelease:
		return content.Outcome(c.writer.Release(ctx, object), 0)
	case stepCut:
		object, _ = c.failed(ctx, object, errSpread)
		if !strings.Contains(shown(object), errSpread.Error()) {
			return c.options.Poll.Max, nil
		}
	}
	return 0, nil // nothing to repeat: volumes do not move
}
