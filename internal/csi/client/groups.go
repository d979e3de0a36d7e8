package client

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// CreateVolumeGroupSnapshot is the RPC of that name.
func (c *Client) CreateVolumeGroupSnapshot(
	ctx context.Context, request *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.VolumeGroupSnapshot, error) {
	answer, err := call(ctx, c, "CreateVolumeGroupSnapshot", request, c.groups.CreateVolumeGroupSnapshot)
	return answer.GetGroupSnapshot(), err
}

// DeleteVolumeGroupSnapshot is the RPC of that name.
func (c *Client) DeleteVolumeGroupSnapshot(ctx context.Context, request *csi.DeleteVolumeGroupSnapshotRequest) error {
	_, err := call(ctx, c, "DeleteVolumeGroupSnapshot", request, c.groups.DeleteVolumeGroupSnapshot)
	return err
}

// GetVolumeGroupSnapshot is the RPC of that name.
func (c *Client) GetVolumeGroupSnapshot(
	ctx context.Context, request *csi.GetVolumeGroupSnapshotRequest,
) (*csi.VolumeGroupSnapshot, error) {
	answer, err := call(ctx, c, "GetVolumeGroupSnapshot", request, c.groups.GetVolumeGroupSnapshot)
	return answer.GetGroupSnapshot(), err
}
