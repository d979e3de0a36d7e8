package groups

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v1beta1"
)

// contextCalls are those of v1alpha1 and v1beta1, whose requests say whether a
// path is a plugin's or a pod's. It decides nothing: the roots are the same.
func contextCalls() []call[api.Filesystem] {
	return []call[api.Filesystem]{
		unary("PathExists", pathExistsInContext),
		unary("Mkdir", mkdirInContext),
		unary("Rmdir", rmdirInContext),
		unary("LinkPath", linkPath),
		unary("IsMountPoint", isMountPoint),
	}
}

func checkContext(context pb.PathContext) error {
	if _, known := pb.PathContext_name[int32(context)]; !known {
		return fmt.Errorf("context %d: %w: it is 0 (plugin) or 1 (pod)", context, backend.ErrInvalid)
	}
	return nil
}

func pathExistsInContext(ctx context.Context, files api.Filesystem, req *pb.PathExistsRequest) (*pb.PathExistsResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	exists, err := files.PathExists(ctx, req.GetPath())
	return &pb.PathExistsResponse{Exists: exists}, err
}

func mkdirInContext(ctx context.Context, files api.Filesystem, req *pb.MkdirRequest) (*pb.MkdirResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	return &pb.MkdirResponse{}, files.Mkdir(ctx, req.GetPath())
}

func rmdirInContext(ctx context.Context, files api.Filesystem, req *pb.RmdirRequest) (*pb.RmdirResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	return &pb.RmdirResponse{}, files.Rmdir(ctx, req.GetPath(), req.GetForce())
}

func linkPath(ctx context.Context, files api.Filesystem, req *pb.LinkPathRequest) (*pb.LinkPathResponse, error) {
	return &pb.LinkPathResponse{}, files.Link(ctx, req.GetSourcePath(), req.GetTargetPath())
}

func isMountPoint(ctx context.Context, files api.Filesystem, req *pb.IsMountPointRequest) (*pb.IsMountPointResponse, error) {
	is, err := files.IsLink(ctx, req.GetPath())
	return &pb.IsMountPointResponse{IsMountPoint: is}, err
}
