package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb/v1"
	smbv1beta1 "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb/v1beta1"
)

// smbVersions returns those of the group, the newest first.
func smbVersions() []api.Definition {
	g := group[api.SMB]{
		Name:    "smb",
		Service: "Smb",
		Part:    func(host api.Host) api.SMB { return host.SMB },
	}
	return []api.Definition{
		g.Version("v1", smbCalls()),
		g.Version("v1beta2", smbCalls()),
		g.Version("v1beta1", errorCalls()),
		g.Version("v1alpha1", errorCalls()),
	}
}

// smbCalls are the calls of v1beta2 and later.
func smbCalls() []call[api.SMB] {
	return []call[api.SMB]{
		unary("NewSmbGlobalMapping", newMapping),
		unary("RemoveSmbGlobalMapping", removeMapping),
	}
}

// errorCalls are the calls of v1alpha1 and v1beta1, whose responses have a field for an
// error, which is never set.
func errorCalls() []call[api.SMB] {
	before := older[api.SMB]{proto: smbv1beta1.File_internal_csiproxy_groups_smb_v1beta1_api_proto, newer: smbCalls()}
	return before.same("NewSmbGlobalMapping", "RemoveSmbGlobalMapping")
}

func newMapping(
	ctx context.Context, shares api.SMB, req *pb.NewSmbGlobalMappingRequest,
) (*pb.NewSmbGlobalMappingResponse, error) {
	return &pb.NewSmbGlobalMappingResponse{}, shares.Mount(ctx, mount(req))
}

func removeMapping(
	ctx context.Context, shares api.SMB, req *pb.RemoveSmbGlobalMappingRequest,
) (*pb.RemoveSmbGlobalMappingResponse, error) {
	return &pb.RemoveSmbGlobalMappingResponse{}, unmount(ctx, shares, req.GetRemotePath())
}

func mount(req *pb.NewSmbGlobalMappingRequest) api.SMBMount {
	return api.SMBMount{
		Remote:   req.GetRemotePath(),
		Local:    req.GetLocalPath(),
		Username: req.GetUsername(),
		Password: api.Secret(req.GetPassword()),
	}
}

// unmount ends one mount. The call's name means the mapping of the whole share, but its
// removal would disconnect other mounts. A request does not name the mount. The driver has
// removed its link before, by the filesystem group, so it is a mount without a link.
func unmount(ctx context.Context, shares api.SMB, remote string) error {
	return shares.Unmount(ctx, remote, "")
}
