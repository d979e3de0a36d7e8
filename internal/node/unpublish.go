package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// Unpublish takes the volume away from the target path and removes the path.
// An inline volume is deleted. A missing path, mount or volume is not an error.
// ErrPrecondition when something else is mounted there or it contains files, all of
// which stay; ErrInUse when a process works in it.
func (e *Engine) Unpublish(ctx context.Context, volumeID, targetPath string) error {
	if err := checkID(volumeID); err != nil {
		return err
	}
	if err := e.paths.CheckPath("target_path", targetPath); err != nil {
		return err
	}
	keys := []string{TargetKey(targetPath)}
	inline := inlineHandle.MatchString(volumeID)
	if inline {
		keys = append(keys, VolumeKey(volumeID))
	}
	return e.calls.Run(ctx, "unpublish volume "+volumeID, keys, func(ctx context.Context) error {
		if inline {
			if volume, err := e.inlineVolume(ctx, volumeID); err != nil || volume != nil {
				return e.unpublishInline(ctx, volume, targetPath, err)
			}
		}
		devices, err := e.backend.Devices(ctx, volumeID)
		if err != nil {
			return err
		}
		return e.clearTarget(ctx, targetPath, devices, "node/unpublish")
	})
}

// clearTarget unmounts the volume and removes the path.
func (e *Engine) clearTarget(ctx context.Context, path string, devices []backend.Device, point string) error {
	mountPoint, err := e.paths.Resolve("target_path", path)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeQuietly(mountPoint)
	if err := e.clear(ctx, mountPoint, devices, point); err != nil {
		return err
	}
	if err := mountPoint.Remove(); err != nil {
		return err
	}
	return e.points.Hit(point + "/removed")
}

// isShown reports whether one of the devices is mounted at the path.
func (e *Engine) isShown(path string, devices []backend.Device) (bool, error) {
	node, err := e.open("target_path", path)
	if errors.Is(err, backend.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closeQuietly(node)
	return node.MountRoot && owns(node, devices), nil
}

// open opens a path of a request; ErrNotFound when there is nothing.
func (e *Engine) open(name, path string) (*mount.Node, error) {
	mountPoint, err := e.paths.Resolve(name, path)
	if err != nil {
		return nil, err
	}
	defer closeQuietly(mountPoint)
	node, err := mountPoint.Open()
	if err != nil && ignoreAbsent(err) == nil {
		return nil, fmt.Errorf("%s %s: %w", name, path, backend.ErrNotFound)
	}
	return node, err
}
