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
	wish, err := c.wishOf(*now, mutable, metadata)
	if err != nil {
		return err
	}
	_, err = c.changes.Apply(ctx, now, volume.ID, wish)
	return err
}

// wishOf reads the parameters of a modification. They are those of a creation,
// read by the same parser; the type that they do not name is the volume's.
func (c *Controller) wishOf(v cloud.Volume, mutable, metadata map[string]string) (change.Wish, error) {
	said, err := params.ParseVolume(map[string]string{"type": v.Type}, mutable)
	if err != nil {
		return change.Wish{}, err
	}
	if err := tags.CheckRemoval(said.Untag); err != nil {
		return change.Wish{}, err
	}
	wish := change.Wish{IOPS: said.IOPS, IOPSPerGB: said.IOPSPerGB, Throughput: said.Throughput, Untag: said.Untag}
	if _, named := mutable["type"]; named {
		wish.Type = said.Type
	}
	if said.KeepRatioSaid {
		wish.KeepRatio = &said.KeepRatio
	}
	if wish.Tags, err = c.tags.Changed(said.Tags, metadata); err != nil {
		return change.Wish{}, err
	}
	return wish, nil
}
