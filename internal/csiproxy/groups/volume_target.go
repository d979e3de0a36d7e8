package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/volume/v2alpha1"
)

// targetCalls are those of v1beta3 and later, which call a path target_path and
// have numbers of disks.
func targetCalls() []call[api.Volumes] {
	return []call[api.Volumes]{
		unary("ListVolumesOnDisk", listVolumesOnDisk),
		unary("MountVolume", mountVolume),
		unary("UnmountVolume", unmountVolume),
		unary("IsVolumeFormatted", isVolumeFormatted),
		unary("FormatVolume", formatVolume),
		unary("ResizeVolume", resizeVolume),
		unary("GetVolumeStats", getVolumeStats),
		unary("GetDiskNumberFromVolumeID", getDiskNumber),
		unary("GetVolumeIDFromTargetPath", getVolumeID),
		unary("WriteVolumeCache", writeVolumeCache),
	}
}

// closestCalls are those of v2alpha1 alone.
func closestCalls() []call[api.Volumes] {
	return []call[api.Volumes]{unary("GetClosestVolumeIDFromTargetPath", getClosestVolumeID)}
}

func listVolumesOnDisk(
	ctx context.Context, volumes api.Volumes, req *pb.ListVolumesOnDiskRequest,
) (*pb.ListVolumesOnDiskResponse, error) {
	ids, err := list(ctx, volumes, req.GetDiskNumber(), req.GetPartitionNumber())
	return &pb.ListVolumesOnDiskResponse{VolumeIds: ids}, err
}

func mountVolume(
	ctx context.Context, volumes api.Volumes, req *pb.MountVolumeRequest,
) (*pb.MountVolumeResponse, error) {
	return &pb.MountVolumeResponse{}, volumes.Mount(ctx, req.GetVolumeId(), req.GetTargetPath())
}

func unmountVolume(
	ctx context.Context, volumes api.Volumes, req *pb.UnmountVolumeRequest,
) (*pb.UnmountVolumeResponse, error) {
	return &pb.UnmountVolumeResponse{}, volumes.Unmount(ctx, req.GetVolumeId(), req.GetTargetPath())
}

func isVolumeFormatted(
	ctx context.Context, volumes api.Volumes, req *pb.IsVolumeFormattedRequest,
) (*pb.IsVolumeFormattedResponse, error) {
	is, err := formatted(ctx, volumes, req.GetVolumeId())
	return &pb.IsVolumeFormattedResponse{Formatted: is}, err
}

func formatVolume(
	ctx context.Context, volumes api.Volumes, req *pb.FormatVolumeRequest,
) (*pb.FormatVolumeResponse, error) {
	return &pb.FormatVolumeResponse{}, format(ctx, volumes, req.GetVolumeId())
}

func resizeVolume(
	ctx context.Context, volumes api.Volumes, req *pb.ResizeVolumeRequest,
) (*pb.ResizeVolumeResponse, error) {
	return &pb.ResizeVolumeResponse{}, resize(ctx, volumes, req.GetVolumeId(), req.GetSizeBytes())
}

func getVolumeStats(
	ctx context.Context, volumes api.Volumes, req *pb.GetVolumeStatsRequest,
) (*pb.GetVolumeStatsResponse, error) {
	stats, err := volumes.Stats(ctx, req.GetVolumeId())
	return &pb.GetVolumeStatsResponse{TotalBytes: stats.Total, UsedBytes: stats.Used}, err
}

func getDiskNumber(
	ctx context.Context, volumes api.Volumes, req *pb.GetDiskNumberFromVolumeIDRequest,
) (*pb.GetDiskNumberFromVolumeIDResponse, error) {
	number, err := volumes.DiskOf(ctx, req.GetVolumeId())
	return &pb.GetDiskNumberFromVolumeIDResponse{DiskNumber: number}, err
}

func getVolumeID(
	ctx context.Context, volumes api.Volumes, req *pb.GetVolumeIDFromTargetPathRequest,
) (*pb.GetVolumeIDFromTargetPathResponse, error) {
	id, err := volumes.At(ctx, req.GetTargetPath())
	return &pb.GetVolumeIDFromTargetPathResponse{VolumeId: id}, err
}

func getClosestVolumeID(
	ctx context.Context, volumes api.Volumes, req *pb.GetClosestVolumeIDFromTargetPathRequest,
) (*pb.GetClosestVolumeIDFromTargetPathResponse, error) {
	id, err := volumes.Closest(ctx, req.GetTargetPath())
	return &pb.GetClosestVolumeIDFromTargetPathResponse{VolumeId: id}, err
}

func writeVolumeCache(
	ctx context.Context, volumes api.Volumes, req *pb.WriteVolumeCacheRequest,
) (*pb.WriteVolumeCacheResponse, error) {
	return &pb.WriteVolumeCacheResponse{}, volumes.Flush(ctx, req.GetVolumeId())
}
