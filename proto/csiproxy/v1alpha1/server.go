// Package v1alpha1 is the first version of the KEP's API, to the letter: its messages, and
// their translation to package api.
package v1alpha1

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/compose"
)

// Version is what this one is called, in its pipe's name too.
const Version = "v1alpha1"

// Definition gives the version to a proxy. Operations are shared with the other
// versions.
func Definition(operations *compose.Operations) api.Definition {
	return api.Definition{Version: Version, Register: func(registrar grpc.ServiceRegistrar, host api.Host) {
		RegisterCSIProxyServiceServer(registrar, &server{host: host, operations: operations})
	}}
}

// server answers with the errors of the host as they are.
type server struct {
	UnimplementedCSIProxyServiceServer
	host       api.Host
	operations *compose.Operations
}

func (s *server) Mkdir(ctx context.Context, r *MkdirRequest) (*MkdirResponse, error) {
	return &MkdirResponse{}, compose.Mkdir(ctx, s.host, r.GetPath())
}

func (s *server) Rmdir(ctx context.Context, r *RmdirRequest) (*RmdirResponse, error) {
	return &RmdirResponse{}, s.host.Filesystem.Rmdir(ctx, r.GetPath(), false)
}

func (s *server) Rescan(ctx context.Context, _ *RescanRequest) (*RescanResponse, error) {
	return &RescanResponse{}, s.host.Disks.Rescan(ctx)
}

func (s *server) PartitionDisk(ctx context.Context, r *PartitionDiskRequest) (*PartitionDiskResponse, error) {
	disk, err := number("disk_id", r.GetDiskId())
	if err != nil {
		return nil, err
	}
	volumeID, err := s.operations.Partition(ctx, s.host, disk)
	return &PartitionDiskResponse{VolumeId: volumeID}, err
}

func (s *server) FormatVolume(ctx context.Context, r *FormatVolumeRequest) (*FormatVolumeResponse, error) {
	_, err := s.operations.FormatAndMount(ctx, s.host, compose.Format{VolumeID: r.GetVolumeId(), FileSystem: r.GetFileSystem(), Path: r.GetStagingPath()})
	return &FormatVolumeResponse{}, err
}

func (s *server) MountSMBShare(ctx context.Context, r *MountSMBShareRequest) (*MountSMBShareResponse, error) {
	return &MountSMBShareResponse{}, compose.MountSMBShare(ctx, s.host, SMBMountToHub(r))
}

func (s *server) MountISCSILun(ctx context.Context, r *MountISCSILunRequest) (*MountISCSILunResponse, error) {
	login, lun, err := LoginToHub(r)
	if err != nil {
		return nil, err
	}
	disk, err := s.operations.MountISCSILun(ctx, s.host, login, lun)
	return &MountISCSILunResponse{DiskId: numberText(disk)}, err
}

func (s *server) LinkVolume(ctx context.Context, r *LinkVolumeRequest) (*LinkVolumeResponse, error) {
	return &LinkVolumeResponse{}, s.host.Filesystem.Link(ctx, r.GetStagingPath(), r.GetTargetPath())
}

func (s *server) GetDiskLocations(ctx context.Context, _ *GetDiskLocationsRequest) (*GetDiskLocationsResponse, error) {
	disks, err := s.host.Disks.List(ctx)
	return &GetDiskLocationsResponse{DiskLocations: DiskLocationsFromHub(disks)}, err
}

func (s *server) GetDiskIDs(ctx context.Context, _ *GetDiskIDsRequest) (*GetDiskIDsResponse, error) {
	disks, err := s.host.Disks.List(ctx)
	return &GetDiskIDsResponse{DiskIds: DiskIDsFromHub(disks)}, err
}

func (s *server) ResizeVolume(ctx context.Context, r *ResizeVolumeRequest) (*ResizeVolumeResponse, error) {
	_, err := s.host.Volumes.Resize(ctx, r.GetVolumeId(), r.GetSizeBytes())
	return &ResizeVolumeResponse{}, err
}
