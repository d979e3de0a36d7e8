package ebs

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/change"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// Modify changes parameters of a volume, in one modification with its growth if both are
// requested at the same time. See change.Changer.
func (c *Controller) Modify(ctx context.Context, volume backend.Volume, mutable, metadata map[string]string) error {
	now := described(volume)
	if now == nil {
		v, err := c.describe(ctx, volume.ID)
		if err != nil {
			return err
		}
		now = &v
	}
	parsed, desired, err := c.desiredOf(*now, mutable, metadata)
	if err != nil {
		return err
	}
	after, err := c.changes.Apply(ctx, now, volume.ID, desired)
	if err != nil {
		return err
	}
	c.warn(ctx, volume.ID, parsed, shapeOf(after))
	return nil
}

// desiredOf reads the parameters of a modification with the parser for creations. If they
// do not name the type, it is the volume's.
func (c *Controller) desiredOf(
	v cloud.Volume, mutable, metadata map[string]string,
) (parsed params.Volume, desired change.Desired, err error) {
	parsed, err = params.ParseVolume(map[string]string{"type": v.Type}, mutable, c.options.Reading)
	if err == nil {
		err = tags.CheckRemoval(parsed.Untag)
	}
	if err != nil {
		return parsed, desired, err
	}
	desired = change.Desired{IOPS: parsed.IOPS, IOPSPerGB: parsed.IOPSPerGB, Throughput: parsed.Throughput,
		Untag: parsed.Untag, Lenient: parsed.Lenient}
	if _, named := mutable["type"]; named {
		desired.Type = parsed.Type
	}
	if parsed.KeepRatioSet {
		desired.KeepRatio = &parsed.KeepRatio
	}
	desired.Tags, err = c.tags.Changed(parsed.Tags, metadata)
	return parsed, desired, err
}
