package ebs

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/change"
)

// newChanges makes the Changer that grows and modifies.
func (c *Controller) newChanges() *change.Changer {
	return change.New(c.cloud, change.Options{Window: c.options.ChangeWindow, Lag: c.lag, Logger: c.log})
}

// Expand grows a volume, in one modification with other changes that are requested at the
// same time. See change.Changer.
func (c *Controller) Expand(ctx context.Context, volume backend.Volume, size int64) (backend.Volume, error) {
	n, err := inGiB(size)
	if err != nil {
		return backend.Volume{}, err
	}
	v, err := c.changes.Apply(ctx, described(volume), volume.ID, change.Desired{Size: n})
	if err != nil {
		return backend.Volume{}, err
	}
	return toVolume(v), nil
}
