package groups

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v2alpha1"
)

// symlinkCalls are the calls of v1beta2 and later.
func symlinkCalls() []call[api.Filesystem] {
	return []call[api.Filesystem]{
		unary("PathExists", pathExists),
		unary("Mkdir", mkdir),
		unary("Rmdir", rmdir),
		unary("CreateSymlink", createSymlink),
		unary("IsSymlink", isSymlink),
	}
}

// contentsCalls are the calls of v2alpha1 alone.
func contentsCalls() []call[api.Filesystem] {
	return []call[api.Filesystem]{unary("RmdirContents", rmdirContents)}
}

func pathExists(ctx context.Context, files api.Filesystem, req *pb.PathExistsRequest) (*pb.PathExistsResponse, error) {
	exists, err := files.PathExists(ctx, req.GetPath())
	return &pb.PathExistsResponse{Exists: exists}, err
}

func mkdir(ctx context.Context, files api.Filesystem, req *pb.MkdirRequest) (*pb.MkdirResponse, error) {
	return &pb.MkdirResponse{}, files.Mkdir(ctx, req.GetPath())
}

func rmdir(ctx context.Context, files api.Filesystem, req *pb.RmdirRequest) (*pb.RmdirResponse, error) {
	return &pb.RmdirResponse{}, files.Rmdir(ctx, req.GetPath(), req.GetForce())
}

func rmdirContents(
	ctx context.Context, files api.Filesystem, req *pb.RmdirContentsRequest,
) (*pb.RmdirContentsResponse, error) {
	return &pb.RmdirContentsResponse{}, files.RmdirContents(ctx, req.GetPath())
}

func createSymlink(
	ctx context.Context, files api.Filesystem, req *pb.CreateSymlinkRequest,
) (*pb.CreateSymlinkResponse, error) {
	return &pb.CreateSymlinkResponse{}, files.Link(ctx, req.GetSourcePath(), req.GetTargetPath())
}

func isSymlink(ctx context.Context, files api.Filesystem, req *pb.IsSymlinkRequest) (*pb.IsSymlinkResponse, error) {
	is, err := files.IsLink(ctx, req.GetPath())
	return &pb.IsSymlinkResponse{IsSymlink: is}, err
}
