package client

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// ListVolumes returns one page.
func (c *Client) ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	return call(ctx, c, "ListVolumes", request, c.controller.ListVolumes)
}

// ControllerGetVolume is the RPC of that name.
func (c *Client) ControllerGetVolume(
	ctx context.Context, request *csi.ControllerGetVolumeRequest,
) (*csi.ControllerGetVolumeResponse, error) {
	return call(ctx, c, "ControllerGetVolume", request, c.controller.ControllerGetVolume)
}

// ListSnapshots returns one page.
func (c *Client) ListSnapshots(
	ctx context.Context, request *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	return call(ctx, c, "ListSnapshots", request, c.controller.ListSnapshots)
}

// GetSnapshot is the RPC of that name.
func (c *Client) GetSnapshot(ctx context.Context, request *csi.GetSnapshotRequest) (*csi.Snapshot, error) {
	answer, err := call(ctx, c, "GetSnapshot", request, c.controller.GetSnapshot)
	return answer.GetSnapshot(), err
}
