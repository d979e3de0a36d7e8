package filesystem

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v1beta1"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
)

// contextCalls are those of v1alpha1 and v1beta1, whose requests say whether a
// path is a plugin's or a pod's. It decides nothing: the roots are the same.
func contextCalls() []api.Call[hub.Filesystem] {
	return []api.Call[hub.Filesystem]{
		api.Unary("PathExists", pathExistsInContext),
		api.Unary("Mkdir", mkdirInContext),
		api.Unary("Rmdir", rmdirInContext),
		api.Unary("LinkPath", linkPath),
		api.Unary("IsMountPoint", isMountPoint),
	}
}

func checkContext(context pb.PathContext) error {
	if _, known := pb.PathContext_name[int32(context)]; !known {
		return fmt.Errorf("context %d: %w: it is 0 (plugin) or 1 (pod)", context, backend.ErrInvalid)
	}
	return nil
}

func pathExistsInContext(ctx context.Context, files hub.Filesystem, req *pb.PathExistsRequest) (*pb.PathExistsResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	exists, err := files.PathExists(ctx, req.GetPath())
	return &pb.PathExistsResponse{Exists: exists}, err
}

func mkdirInContext(ctx context.Context, files hub.Filesystem, req *pb.MkdirRequest) (*pb.MkdirResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	return &pb.MkdirResponse{}, files.Mkdir(ctx, req.GetPath())
}

func rmdirInContext(ctx context.Context, files hub.Filesystem, req *pb.RmdirRequest) (*pb.RmdirResponse, error) {
	if err := checkContext(req.GetContext()); err != nil {
		return nil, err
	}
	return &pb.RmdirResponse{}, files.Rmdir(ctx, req.GetPath(), req.GetForce())
}

func linkPath(ctx context.Context, files hub.Filesystem, req *pb.LinkPathRequest) (*pb.LinkPathResponse, error) {
	return &pb.LinkPathResponse{}, files.Link(ctx, req.GetSourcePath(), req.GetTargetPath())
}

func isMountPoint(ctx context.Context, files hub.Filesystem, req *pb.IsMountPointRequest) (*pb.IsMountPointResponse, error) {
	is, err := files.IsLink(ctx, req.GetPath())
	return &pb.IsMountPointResponse{IsMountPoint: is}, err
}
