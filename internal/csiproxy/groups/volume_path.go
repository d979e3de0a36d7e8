package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/volume/v1beta2"
)

// The calls up to v1beta2, which call a path path or mount and have texts for
// disks: those of all, those of v1beta1 and later, the one of v1beta2 alone.

func pathCalls() []call[api.Volumes] {
	return []call[api.Volumes]{
		unary("ListVolumesOnDisk", listVolumesOnDiskText),
		unary("MountVolume", mountVolumeAtPath),
		unary("DismountVolume", dismountVolume),
		unary("IsVolumeFormatted", isVolumeFormattedBefore),
		unary("FormatVolume", formatVolumeBefore),
		unary("ResizeVolume", resizeVolumeToSize),
	}
}

func pathStatsCalls() []call[api.Volumes] {
	return []call[api.Volumes]{
		unary("VolumeStats", volumeStats),
		unary("GetVolumeDiskNumber", getVolumeDiskNumber),
		unary("GetVolumeIDFromMount", getVolumeIDFromMount),
	}
}

func pathCacheCalls() []call[api.Volumes] {
	return []call[api.Volumes]{unary("WriteVolumeCache", writeVolumeCacheBefore)}
}

func listVolumesOnDiskText(ctx context.Context, volumes api.Volumes, req *pb.ListVolumesOnDiskRequest) (*pb.ListVolumesOnDiskResponse, error) {
	disk, err := diskNumber("disk_id", req.GetDiskId())
	if err != nil {
		return nil, err
	}
	ids, err := list(ctx, volumes, disk, allPartitions)
	return &pb.ListVolumesOnDiskResponse{VolumeIds: ids}, err
}

func mountVolumeAtPath(ctx context.Context, volumes api.Volumes, req *pb.MountVolumeRequest) (*pb.MountVolumeResponse, error) {
	return &pb.MountVolumeResponse{}, volumes.Mount(ctx, req.GetVolumeId(), req.GetPath())
}

func dismountVolume(ctx context.Context, volumes api.Volumes, req *pb.DismountVolumeRequest) (*pb.DismountVolumeResponse, error) {
	return &pb.DismountVolumeResponse{}, volumes.Unmount(ctx, req.GetVolumeId(), req.GetPath())
}

func isVolumeFormattedBefore(ctx context.Context, volumes api.Volumes, req *pb.IsVolumeFormattedRequest) (*pb.IsVolumeFormattedResponse, error) {
	is, err := formatted(ctx, volumes, req.GetVolumeId())
	return &pb.IsVolumeFormattedResponse{Formatted: is}, err
}

func formatVolumeBefore(ctx context.Context, volumes api.Volumes, req *pb.FormatVolumeRequest) (*pb.FormatVolumeResponse, error) {
	return &pb.FormatVolumeResponse{}, format(ctx, volumes, req.GetVolumeId())
}

func resizeVolumeToSize(ctx context.Context, volumes api.Volumes, req *pb.ResizeVolumeRequest) (*pb.ResizeVolumeResponse, error) {
	return &pb.ResizeVolumeResponse{}, resize(ctx, volumes, req.GetVolumeId(), "size", req.GetSize())
}

func volumeStats(ctx context.Context, volumes api.Volumes, req *pb.VolumeStatsRequest) (*pb.VolumeStatsResponse, error) {
	stats, err := volumes.Stats(ctx, req.GetVolumeId())
	return &pb.VolumeStatsResponse{VolumeSize: stats.Total, VolumeUsedSize: stats.Used}, err
}

func getVolumeDiskNumber(ctx context.Context, volumes api.Volumes, req *pb.VolumeDiskNumberRequest) (*pb.VolumeDiskNumberResponse, error) {
	number, err := volumes.DiskOf(ctx, req.GetVolumeId())
	return &pb.VolumeDiskNumberResponse{DiskNumber: int64(number)}, err
}

func getVolumeIDFromMount(ctx context.Context, volumes api.Volumes, req *pb.VolumeIDFromMountRequest) (*pb.VolumeIDFromMountResponse, error) {
	id, err := volumes.At(ctx, req.GetMount())
	return &pb.VolumeIDFromMountResponse{VolumeId: id}, err
}

func writeVolumeCacheBefore(ctx context.Context, volumes api.Volumes, req *pb.WriteVolumeCacheRequest) (*pb.WriteVolumeCacheResponse, error) {
	return &pb.WriteVolumeCacheResponse{}, volumes.Flush(ctx, req.GetVolumeId())
}
