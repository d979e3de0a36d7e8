package client

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// ControllerModifyVolume is the RPC of that name.
func (c *Client) ControllerModifyVolume(ctx context.Context, request *csi.ControllerModifyVolumeRequest) error {
	_, err := call(ctx, c, "ControllerModifyVolume", request, c.controller.ControllerModifyVolume)
	return err
}

// GetCapacity is the RPC of that name.
func (c *Client) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	return call(ctx, c, "GetCapacity", request, c.controller.GetCapacity)
}

// ValidateVolumeCapabilities is the RPC of that name.
func (c *Client) ValidateVolumeCapabilities(
	ctx context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	return call(ctx, c, "ValidateVolumeCapabilities", request, c.controller.ValidateVolumeCapabilities)
}
