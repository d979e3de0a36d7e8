package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ValidateVolumeCapabilities confirms every capability of a volume that
// exists.
func (d *Driver) ValidateVolumeCapabilities(
	ctx context.Context, request *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.findVolume(request.GetVolumeId()) == nil || !onNode(request.GetVolumeId(), instanceOf(ctx)) {
		return nil, status.Errorf(codes.NotFound, "volume %s does not exist", request.GetVolumeId())
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: request.GetVolumeCapabilities()},
	}, nil
}
