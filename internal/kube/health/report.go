package health

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
)

const (
	// pageSize keeps a page far below the size limit of a gRPC message: a reasonable
	// driver reports at most 16 entries of 2 KiB for a volume.
	pageSize = 500
	// restarts is how often one poll restarts the list after a rejected page token.
	restarts = 3
)

// report is the driver's list of volumes with conditions, by handle. A volume that
// it lacks is healthy, or was missed because pages shifted.
type report map[string][]*csi.VolumeHealth_VolumeHealthEntry

// list reads all pages. After an error it returns nothing: a part of a list does not
// prove that a volume is healthy.
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
		// CSI guarantees no consistent view over pages: a volume may come twice with
		// different entries. All entries count.
		for _, volume := range page.GetEntries() {
			found[volume.GetVolumeId()] = append(found[volume.GetVolumeId()], volume.GetHealthStatuses()...)
		}
		token = page.GetNextToken()
		if token == "" {
			return found, nil
		}
		if seen[token] {
			return nil, fmt.Errorf("driver %s: ControllerListVolumeHealth returned page token %q twice: the list has no end",
				c.env.Driver, token)
		}
		seen[token] = true
	}
}

func (c *Controller) page(ctx context.Context, token string) (*csi.ControllerListVolumeHealthResponse, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerListVolumeHealth(ctx, &csi.ControllerListVolumeHealthRequest{MaxEntries: pageSize, StartingToken: token})
}

// get gets the health of one volume.
func (c *Controller) get(ctx context.Context, handle string) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	answer, err := c.env.CSI.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: handle})
	if err != nil {
		return nil, err
	}
	health := answer.GetVolumeHealth()
	if health == nil {
		return nil, fmt.Errorf("driver %s: ControllerGetVolumeHealth of %s returned no volume_health, which CSI requires",
			c.env.Driver, handle)
	}
	if other := health.GetVolumeId(); other != "" && other != handle {
		return nil, fmt.Errorf("driver %s: ControllerGetVolumeHealth of %s returned the health of volume %s",
			c.env.Driver, handle, other)
	}
	return health.GetHealthStatuses(), nil
}

// ended reports whether an error is nil or only that a context ended.
func ended(ctx context.Context, err error) bool {
	return err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled)
}
