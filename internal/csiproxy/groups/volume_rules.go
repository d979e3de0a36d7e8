package groups

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// list never has an empty ID in it: drivers take the first without looking.
func list(ctx context.Context, volumes api.Volumes, disk, partition uint32) ([]string, error) {
	ids, err := volumes.OnDisk(ctx, disk, partition)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" }), nil
}

// formatted is true for every filesystem that Windows knows, not only NTFS.
func formatted(ctx context.Context, volumes api.Volumes, id string) (bool, error) {
	name, err := volumes.FileSystem(ctx, id)
	return name != "", err
}

// format leaves the choice of the filesystem to the host. It does less than these
// versions promised: a volume that has one is refused.
func format(ctx context.Context, volumes api.Volumes, id string) error {
	return volumes.Format(ctx, id, "")
}

// resize grows to size bytes, or to all there is if it is 0.
func resize(ctx context.Context, volumes api.Volumes, id string, size int64) error {
	if size < 0 {
		return fmt.Errorf("size %d: %w: it is negative; give bytes, or 0 for all there is", size, backend.ErrInvalid)
	}
	_, err := volumes.Resize(ctx, id, size)
	return err
}
