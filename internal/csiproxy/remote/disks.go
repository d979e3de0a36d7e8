package remote

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

type disks struct{ proxy v1.CSIProxyServiceClient }

func (d disks) List(ctx context.Context) ([]api.Disk, error) {
	response, err := d.proxy.ListDisks(ctx, &v1.ListDisksRequest{})
	if err != nil {
		return nil, translate(ctx, err)
	}
	converted := make([]api.Disk, len(response.GetDisks()))
	for i, disk := range response.GetDisks() {
		converted[i] = v1.DiskToAPI(disk)
	}
	return converted, nil
}

func (d disks) Rescan(ctx context.Context) error {
	response, err := d.proxy.Rescan(ctx, &v1.RescanRequest{})
	return done(ctx, response, err)
}

func (d disks) Partition(ctx context.Context, disk uint32, expected api.Identity) (string, error) {
	response, err := d.proxy.PartitionDisk(ctx, &v1.PartitionDiskRequest{DiskNumber: disk, ExpectedIds: v1.IdentityFromAPI(expected)})
	return response.GetVolumeId(), translate(ctx, err)
}

func (d disks) Size(ctx context.Context, disk uint32) (int64, error) {
	response, err := d.proxy.GetDiskState(ctx, &v1.GetDiskStateRequest{DiskNumber: disk})
	return response.GetSizeBytes(), translate(ctx, err)
}

func (d disks) Online(ctx context.Context, disk uint32) (bool, error) {
	response, err := d.proxy.GetDiskState(ctx, &v1.GetDiskStateRequest{DiskNumber: disk})
	return response.GetOnline(), translate(ctx, err)
}

func (d disks) SetOnline(ctx context.Context, disk uint32, expected api.Identity, online bool) error {
	response, err := d.proxy.SetDiskState(ctx, &v1.SetDiskStateRequest{
		DiskNumber: disk, Online: online, ExpectedIds: v1.IdentityFromAPI(expected),
	})
	return done(ctx, response, err)
}
