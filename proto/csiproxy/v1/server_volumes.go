package v1

import (
	"context"
)

func (s *server) ListVolumes(ctx context.Context, r *ListVolumesRequest) (*ListVolumesResponse, error) {
	ids, err := s.host.Volumes.OnDisk(ctx, r.GetDiskNumber(), r.GetPartitionNumber())
	return &ListVolumesResponse{VolumeIds: ids}, err
}

func (s *server) GetVolumeDisk(ctx context.Context, r *GetVolumeDiskRequest) (*GetVolumeDiskResponse, error) {
	disk, err := s.host.Volumes.DiskOf(ctx, r.GetVolumeId())
	return &GetVolumeDiskResponse{DiskNumber: disk}, err
}

func (s *server) GetVolumeFileSystem(
	ctx context.Context, r *GetVolumeFileSystemRequest,
) (*GetVolumeFileSystemResponse, error) {
	fileSystem, err := s.host.Volumes.FileSystem(ctx, r.GetVolumeId())
	return &GetVolumeFileSystemResponse{FileSystem: fileSystem}, err
}

func (s *server) GetVolumeStats(ctx context.Context, r *GetVolumeStatsRequest) (*GetVolumeStatsResponse, error) {
	stats, err := s.host.Volumes.Stats(ctx, r.GetVolumeId())
	return &GetVolumeStatsResponse{TotalBytes: stats.Total, UsedBytes: stats.Used}, err
}

func (s *server) GetVolumeAtPath(ctx context.Context, r *GetVolumeAtPathRequest) (*GetVolumeAtPathResponse, error) {
	find := s.host.Volumes.At
	if r.GetClosest() {
		find = s.host.Volumes.Closest
	}
	volumeID, err := find(ctx, r.GetPath())
	return &GetVolumeAtPathResponse{VolumeId: volumeID}, err
}

func (s *server) MountVolume(ctx context.Context, r *MountVolumeRequest) (*MountVolumeResponse, error) {
	return &MountVolumeResponse{}, s.host.Volumes.Mount(ctx, r.GetVolumeId(), r.GetStagingPath())
}

func (s *server) FlushVolume(ctx context.Context, r *FlushVolumeRequest) (*FlushVolumeResponse, error) {
	return &FlushVolumeResponse{}, s.host.Volumes.Flush(ctx, r.GetVolumeId())
}
