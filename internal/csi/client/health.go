package client

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// ControllerListVolumeHealth returns one page of the unhealthy volumes.
func (c *Client) ControllerListVolumeHealth(
	ctx context.Context, request *csi.ControllerListVolumeHealthRequest,
) (*csi.ControllerListVolumeHealthResponse, error) {
	return call(ctx, c, "ControllerListVolumeHealth", request, c.controller.ControllerListVolumeHealth)
}

// ControllerGetVolumeHealth is the RPC of that name.
func (c *Client) ControllerGetVolumeHealth(
	ctx context.Context, request *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	return call(ctx, c, "ControllerGetVolumeHealth", request, c.controller.ControllerGetVolumeHealth)
}

// NodeGetVolumeHealth is the RPC of that name.
func (c *Client) NodeGetVolumeHealth(
	ctx context.Context, request *csi.NodeGetVolumeHealthRequest,
) (*csi.NodeGetVolumeHealthResponse, error) {
	return call(ctx, c, "NodeGetVolumeHealth", request, c.node.NodeGetVolumeHealth)
}

// NodeGetStorageHealth is the RPC of that name.
func (c *Client) NodeGetStorageHealth(
	ctx context.Context, request *csi.NodeGetStorageHealthRequest,
) (*csi.NodeGetStorageHealthResponse, error) {
	return call(ctx, c, "NodeGetStorageHealth", request, c.node.NodeGetStorageHealth)
}
