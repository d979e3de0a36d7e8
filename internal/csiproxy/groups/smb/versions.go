// Package smb is the group for SMB shares.
package smb

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb/v1"
	smbv1beta1 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb/v1beta1"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.SMB]{
		Name:    "smb",
		Service: "Smb",
		Part:    func(host hub.Host) hub.SMB { return host.SMB },
	}
	return []version.Definition{
		group.Version("v1", calls()),
		group.Version("v1beta2", calls()),
		group.Version("v1beta1", errorCalls()),
		group.Version("v1alpha1", errorCalls()),
	}
}

// calls are those of v1beta2 and later.
func calls() []api.Call[hub.SMB] {
	return []api.Call[hub.SMB]{
		api.Unary("NewSmbGlobalMapping", newMapping),
		api.Unary("RemoveSmbGlobalMapping", removeMapping),
	}
}

// errorCalls are those of v1alpha1 and v1beta1, whose responses have a field for an
// error that nobody fills.
func errorCalls() []api.Call[hub.SMB] {
	return []api.Call[hub.SMB]{
		api.Unary("NewSmbGlobalMapping", newMappingOrError),
		api.Unary("RemoveSmbGlobalMapping", removeMappingOrError),
	}
}

func newMapping(ctx context.Context, shares hub.SMB, req *pb.NewSmbGlobalMappingRequest) (*pb.NewSmbGlobalMappingResponse, error) {
	return &pb.NewSmbGlobalMappingResponse{}, shares.Mount(ctx, mount(req))
}

func removeMapping(ctx context.Context, shares hub.SMB, req *pb.RemoveSmbGlobalMappingRequest) (*pb.RemoveSmbGlobalMappingResponse, error) {
	return &pb.RemoveSmbGlobalMappingResponse{}, unmount(ctx, shares, req.GetRemotePath())
}

func newMappingOrError(ctx context.Context, shares hub.SMB, req *smbv1beta1.NewSmbGlobalMappingRequest) (*smbv1beta1.NewSmbGlobalMappingResponse, error) {
	return &smbv1beta1.NewSmbGlobalMappingResponse{}, shares.Mount(ctx, mount(req))
}

func removeMappingOrError(ctx context.Context, shares hub.SMB, req *smbv1beta1.RemoveSmbGlobalMappingRequest) (*smbv1beta1.RemoveSmbGlobalMappingResponse, error) {
	return &smbv1beta1.RemoveSmbGlobalMappingResponse{}, unmount(ctx, shares, req.GetRemotePath())
}

// newMappingRequest is that of all versions.
type newMappingRequest interface {
	GetRemotePath() string
	GetLocalPath() string
	GetUsername() string
	GetPassword() string
}

func mount(req newMappingRequest) hub.SMBMount {
	return hub.SMBMount{
		Remote:   req.GetRemotePath(),
		Local:    req.GetLocalPath(),
		Username: req.GetUsername(),
		Password: hub.Secret(req.GetPassword()),
	}
}

// unmount gives up one mount, not the whole share as the call's name says: others
// on the share would be cut off. A request does not say which mount. Its link, if it
// had one, has been removed by the filesystem group before, so it is one without.
func unmount(ctx context.Context, shares hub.SMB, remote string) error {
	return shares.Unmount(ctx, remote, "")
}
