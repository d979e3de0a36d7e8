package remote

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

type volumes struct{ proxy v1.CSIProxyServiceClient }

func (v volumes) OnDisk(ctx context.Context, disk, partition uint32) ([]string, error) {
	response, err := v.proxy.ListVolumes(ctx, &v1.ListVolumesRequest{DiskNumber: disk, PartitionNumber: partition})
	return response.GetVolumeIds(), translate(ctx, err)
}

func (v volumes) FileSystem(ctx context.Context, volumeID string) (string, error) {
	response, err := v.proxy.GetVolumeFileSystem(ctx, &v1.GetVolumeFileSystemRequest{VolumeId: volumeID})
	return response.GetFileSystem(), translate(ctx, err)
}

// Format fails for a volume that has a filesystem, as it does on the machine itself;
// FormatVolume would not change it and succeed.
func (v volumes) Format(ctx context.Context, volumeID, fileSystem string) error {
	response, err := v.proxy.FormatVolume(ctx, &v1.FormatVolumeRequest{VolumeId: volumeID, FileSystem: fileSystem})
	if err == nil && !response.GetFormatted() {
		return fmt.Errorf("%w: volume %s has a filesystem already; it was not changed", backend.ErrPrecondition, volumeID)
	}
	return translate(ctx, err)
}

func (v volumes) Mount(ctx context.Context, volumeID, path string) error {
	response, err := v.proxy.MountVolume(ctx, &v1.MountVolumeRequest{VolumeId: volumeID, StagingPath: path})
	return done(ctx, response, err)
}

func (v volumes) Unmount(ctx context.Context, volumeID, path string) error {
	response, err := v.proxy.UnmountVolume(ctx, &v1.UnmountVolumeRequest{VolumeId: volumeID, StagingPath: path})
	return done(ctx, response, err)
}

func (v volumes) Resize(ctx context.Context, volumeID string, size int64) (int64, error) {
	response, err := v.proxy.ResizeVolume(ctx, &v1.ResizeVolumeRequest{VolumeId: volumeID, SizeBytes: size})
	return response.GetSizeBytes(), translate(ctx, err)
}

func (v volumes) Stats(ctx context.Context, volumeID string) (api.VolumeStats, error) {
	response, err := v.proxy.GetVolumeStats(ctx, &v1.GetVolumeStatsRequest{VolumeId: volumeID})
	return api.VolumeStats{Total: response.GetTotalBytes(), Used: response.GetUsedBytes()}, translate(ctx, err)
}

func (v volumes) DiskOf(ctx context.Context, volumeID string) (uint32, error) {
	response, err := v.proxy.GetVolumeDisk(ctx, &v1.GetVolumeDiskRequest{VolumeId: volumeID})
	return response.GetDiskNumber(), translate(ctx, err)
}

func (v volumes) At(ctx context.Context, path string) (string, error) {
	response, err := v.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: path})
	return response.GetVolumeId(), translate(ctx, err)
}

func (v volumes) Closest(ctx context.Context, path string) (string, error) {
	response, err := v.proxy.GetVolumeAtPath(ctx, &v1.GetVolumeAtPathRequest{Path: path, Closest: true})
	return response.GetVolumeId(), translate(ctx, err)
}

func (v volumes) Flush(ctx context.Context, volumeID string) error {
	response, err := v.proxy.FlushVolume(ctx, &v1.FlushVolumeRequest{VolumeId: volumeID})
	return done(ctx, response, err)
}
