package ebs

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/change"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/params"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// Modify changes parameters of a volume, in one modification with its growth if
// both are asked for at the time. See change.Changer.
func (c *Controller) Modify(ctx context.Context, volume backend.Volume, mutable, metadata map[string]string) error {
	now := described(volume)
	if now == nil {
		v, err := c.describe(ctx, volume.ID)
		if err != nil {
			return err
		}
		now = &v
	}
	desired, err := c.desiredOf(*now, mutable, metadata)
	if err != nil {
		return err
	}
	_, err = c.changes.Apply(ctx, now, volume.ID, desired)
	return err
}

// desiredOf reads the parameters of a modification. They are those of a creation,
// read by the same parser; the type that they do not name is the volume's.
func (c *Controller) desiredOf(v cloud.Volume, mutable, metadata map[string]string) (change.Desired, error) {
	said, err := params.ParseVolume(map[string]string{"type": v.Type}, mutable)
	if err != nil {
		return change.Desired{}, err
	}
	if err := tags.CheckRemoval(said.Untag); err != nil {
		return change.Desired{}, err
	}
	desired := change.Desired{IOPS: said.IOPS, IOPSPerGB: said.IOPSPerGB, Throughput: said.Throughput, Untag: said.Untag}
	if _, named := mutable["type"]; named {
		desired.Type = said.Type
	}
	if said.KeepRatioSaid {
		desired.KeepRatio = &said.KeepRatio
	}
	if desired.Tags, err = c.tags.Changed(said.Tags, metadata); err != nil {
		return change.Desired{}, err
	}
	return desired, nil
}
