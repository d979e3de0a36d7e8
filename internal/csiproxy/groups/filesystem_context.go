package groups

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	pb "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v1beta1"
)

// contextCalls are the calls of v1alpha1 and v1beta1. Their requests have a field for the
// owner of a path, a plugin or a pod. It has no effect: the roots are the same.
func contextCalls() []call[api.Filesystem] {
	before := older[api.Filesystem]{
		proto: pb.File_internal_csiproxy_groups_filesystem_v1beta1_api_proto, newer: symlinkCalls(),
	}
	calls := append(before.same("PathExists", "Mkdir", "Rmdir"),
		before.call("LinkPath", "CreateSymlink", nil),
		before.call("IsMountPoint", "IsSymlink", convert.Names{"is_mount_point": "is_symlink"}),
	)
	for i, c := range calls {
		calls[i].answer = func(ctx context.Context, files api.Filesystem, request any) (any, error) {
			if err := checkContext(request); err != nil {
				return nil, err
			}
			return c.answer(ctx, files, request)
		}
	}
	return calls
}

// checkContext rejects a request with a context that is not one of the enumeration.
func checkContext(request any) error {
	with, ok := request.(interface{ GetContext() pb.PathContext })
	if !ok {
		return nil
	}
	if _, known := pb.PathContext_name[int32(with.GetContext())]; !known {
		return fmt.Errorf("context %d: %w: it is 0 (plugin) or 1 (pod)", with.GetContext(), backend.ErrInvalid)
	}
	return nil
}
