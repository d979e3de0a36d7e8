package health

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
)

const (
	// pageSize keeps a page far below the size limit of a message: a report has
	// 16 entries of 2 KiB at most in a driver that keeps to reason.
	pageSize = 500
	// restarts is how often one look begins anew after a refused page token
	// before it waits for the next look.
	restarts = 3
)

// report is what the driver says of volumes by handle. A volume that is not in
// it is healthy, or was missed while pages shifted.
type report map[string][]*csi.VolumeHealth_VolumeHealthEntry

// list reads all pages. An error means that nothing is known: what had been
// read is not used, for a part of a list says of no volume that it is well.
func (c *Controller) list(ctx context.Context) (report, error) {
	for attempt := 0; ; attempt++ {
		found, err := c.listOnce(ctx)
		if err == nil || attempt == restarts || !client.IsStaleToken(err) {
			return found, err
		}
	}
}

func (c *Controller) listOnce(ctx context.Context) (report, error) {
	found, token, seen := report{}, "", map[string]bool{}
	for {
		page, err := c.page(ctx, token)
		if err != nil {
			return nil, err
		}
		// CSI promises no consistent view over pages: a volume may come twice,
		// with other words each time. All of it counts.
		for _, volume := range page.GetEntries() {
			found[volume.GetVolumeId()] = append(found[volume.GetVolumeId()], volume.GetHealthStatuses()...)
		}
		token = page.GetNextToken()
		if token == "" {
			return found, nil
		}
		if seen[token] {
			return nil, fmt.Errorf("driver %s: ControllerListVolumeHealth gave page token %q twice: the list has no end", c.env.Driver, token)
		}
		seen[token] = true
	}
}

func (c *Controller) page(ctx context.Context, token string) (*csi.ControllerListVolumeHealthResponse, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{MaxEntries: pageSize, StartingToken: token})
}

// ask asks for one volume.
func (c *Controller) ask(ctx context.Context, handle string) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	answer, err := c.env.CSI.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
	if err != nil {
		return nil, err
	}
	health := answer.GetVolumeHealth()
	if health == nil {
		return nil, fmt.Errorf("driver %s: ControllerGetVolumeHealth of %s answers without volume_health, which CSI requires", c.env.Driver, handle)
	}
	if other := health.GetVolumeId(); other != "" && other != handle {
		return nil, fmt.Errorf("driver %s: ControllerGetVolumeHealth of %s answers for volume %s", c.env.Driver, handle, other)
	}
	return health.GetHealthStatuses(), nil
}

// ended tells whether an error is only that of a context that ended.
func ended(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled)
}
