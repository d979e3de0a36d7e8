// Package v1 is the stable version of the KEP's API: its messages, and their conversion
// to package api.
package v1

import (
	"context"

	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/compose"
)

// Version is the name of this version, also in its pipe's name.
const Version = "v1"

// Definition returns the definition of the version for a proxy. The operations are shared
// with the other versions.
func Definition(operations *compose.Operations) api.Definition {
	return api.Definition{Version: Version, Register: func(registrar grpc.ServiceRegistrar, host api.Host) {
		RegisterCSIProxyServiceServer(registrar, NewServer(host, operations))
	}}
}

// NewServer returns the server of the version's calls, which also serves those of older
// versions after their conversion.
func NewServer(host api.Host, operations *compose.Operations) CSIProxyServiceServer {
	return &server{host: host, operations: operations}
}

// server returns the errors of the host unchanged.
type server struct {
	UnimplementedCSIProxyServiceServer
	host       api.Host
	operations *compose.Operations
}

func (s *server) Mkdir(ctx context.Context, r *MkdirRequest) (*MkdirResponse, error) {
	return &MkdirResponse{}, compose.Mkdir(ctx, s.host, r.GetPath())
}

func (s *server) Rmdir(ctx context.Context, r *RmdirRequest) (*RmdirResponse, error) {
	return &RmdirResponse{}, s.host.Filesystem.Rmdir(ctx, r.GetPath(), r.GetForce())
}

func (s *server) Rescan(ctx context.Context, _ *RescanRequest) (*RescanResponse, error) {
	return &RescanResponse{}, s.host.Disks.Rescan(ctx)
}

func (s *server) PartitionDisk(ctx context.Context, r *PartitionDiskRequest) (*PartitionDiskResponse, error) {
	volumeID, err := s.host.Disks.Partition(ctx, r.GetDiskNumber(), IdentityToAPI(r.GetExpectedIds()))
	return &PartitionDiskResponse{VolumeId: volumeID}, err
}

func (s *server) FormatVolume(ctx context.Context, r *FormatVolumeRequest) (*FormatVolumeResponse, error) {
	formatted, err := s.operations.FormatVolume(ctx, s.host, compose.Format{
		VolumeID: r.GetVolumeId(), FileSystem: r.GetFileSystem(), Path: r.GetStagingPath(),
	})
	return &FormatVolumeResponse{Formatted: formatted}, err
}

func (s *server) MountSMBShare(ctx context.Context, r *MountSMBShareRequest) (*MountSMBShareResponse, error) {
	return &MountSMBShareResponse{}, s.host.SMB.Mount(ctx, SMBMountToAPI(r))
}

func (s *server) MountISCSILun(ctx context.Context, r *MountISCSILunRequest) (*MountISCSILunResponse, error) {
	login, err := LoginToAPI(r)
	if err != nil {
		return nil, err
	}
	disk, err := s.operations.MountISCSILun(ctx, s.host, login, r.GetLun())
	return &MountISCSILunResponse{DiskNumber: disk}, err
}

func (s *server) LinkVolume(ctx context.Context, r *LinkVolumeRequest) (*LinkVolumeResponse, error) {
	return &LinkVolumeResponse{}, s.host.Filesystem.Link(ctx, r.GetStagingPath(), r.GetTargetPath())
}

func (s *server) GetDiskLocations(ctx context.Context, _ *GetDiskLocationsRequest) (*GetDiskLocationsResponse, error) {
	disks, err := s.host.Disks.List(ctx)
	return &GetDiskLocationsResponse{DiskLocations: DiskLocationsFromAPI(disks)}, err
}

func (s *server) GetDiskIDs(ctx context.Context, _ *GetDiskIDsRequest) (*GetDiskIDsResponse, error) {
	disks, err := s.host.Disks.List(ctx)
	return &GetDiskIDsResponse{DiskIds: DiskIDsFromAPI(disks)}, err
}

func (s *server) ResizeVolume(ctx context.Context, r *ResizeVolumeRequest) (*ResizeVolumeResponse, error) {
	size, err := s.host.Volumes.Resize(ctx, r.GetVolumeId(), r.GetSizeBytes())
	return &ResizeVolumeResponse{SizeBytes: size}, err
}

func (s *server) UnmountVolume(ctx context.Context, r *UnmountVolumeRequest) (*UnmountVolumeResponse, error) {
	return &UnmountVolumeResponse{}, s.host.Volumes.Unmount(ctx, r.GetVolumeId(), r.GetStagingPath())
}

func (s *server) UnmountISCSILun(ctx context.Context, r *UnmountISCSILunRequest) (*UnmountISCSILunResponse, error) {
	return &UnmountISCSILunResponse{}, s.operations.UnmountISCSILun(ctx, s.host, PortalToAPI(r.GetPortal()),
		r.GetIqn(), r.GetLun())
}

func (s *server) UnmountSMBShare(ctx context.Context, r *UnmountSMBShareRequest) (*UnmountSMBShareResponse, error) {
	return &UnmountSMBShareResponse{}, s.host.SMB.Unmount(ctx, r.GetRemotePath(), r.GetStagingPath())
}
