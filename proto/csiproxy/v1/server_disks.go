package v1

import (
	"context"
)

func (s *server) PathExists(ctx context.Context, r *PathExistsRequest) (*PathExistsResponse, error) {
	exists, err := s.host.Filesystem.PathExists(ctx, r.GetPath())
	return &PathExistsResponse{Exists: exists}, err
}

func (s *server) IsLink(ctx context.Context, r *IsLinkRequest) (*IsLinkResponse, error) {
	link, err := s.host.Filesystem.IsLink(ctx, r.GetPath())
	return &IsLinkResponse{IsLink: link}, err
}

func (s *server) RmdirContents(ctx context.Context, r *RmdirContentsRequest) (*RmdirContentsResponse, error) {
	return &RmdirContentsResponse{}, s.host.Filesystem.RmdirContents(ctx, r.GetPath())
}

func (s *server) ListDisks(ctx context.Context, _ *ListDisksRequest) (*ListDisksResponse, error) {
	disks, err := s.host.Disks.List(ctx)
	if err != nil {
		return nil, err
	}
	converted := make([]*Disk, len(disks))
	for i, disk := range disks {
		converted[i] = DiskFromAPI(disk)
	}
	return &ListDisksResponse{Disks: converted}, nil
}

func (s *server) GetDiskState(ctx context.Context, r *GetDiskStateRequest) (*GetDiskStateResponse, error) {
	size, err := s.host.Disks.Size(ctx, r.GetDiskNumber())
	if err != nil {
		return nil, err
	}
	online, err := s.host.Disks.Online(ctx, r.GetDiskNumber())
	return &GetDiskStateResponse{SizeBytes: size, Online: online}, err
}

func (s *server) SetDiskState(ctx context.Context, r *SetDiskStateRequest) (*SetDiskStateResponse, error) {
	return &SetDiskStateResponse{}, s.host.Disks.SetOnline(ctx, r.GetDiskNumber(),
		IdentityToAPI(r.GetExpectedIds()), r.GetOnline())
}
