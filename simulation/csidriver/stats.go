package csidriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// fullness is what every volume has; nothing of it is used.
const fullness = 64 << 10

// NodeGetVolumeStats is the RPC. The capability GET_VOLUME_STATS is not
// announced unless a test adds it.
func (d *Driver) NodeGetVolumeStats(
	_ context.Context, request *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.published[request.GetVolumeId()][request.GetVolumePath()] {
		return nil, status.Errorf(codes.NotFound, "volume %s is not at %s", request.GetVolumeId(), request.GetVolumePath())
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: fullness, Available: fullness},
		{Unit: csi.VolumeUsage_INODES, Total: 16, Available: 15, Used: 1},
	}}, nil
}
