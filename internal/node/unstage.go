package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// Unstage undoes Stage and everything that an interrupted Stage left. A path
// that does not exist, a volume that is not staged or not known, a device that
// is gone: all are fine. ErrInUse when the volume is still published, or a
// process uses its device. ErrPrecondition when something else is mounted at
// the staging path, which stays.
func (e *Engine) Unstage(ctx context.Context, volumeID, stagingPath string) error {
	if err := checkID(volumeID); err != nil {
		return err
	}
	if err := e.paths.CheckPath("staging_target_path", stagingPath); err != nil {
		return err
	}
	return e.calls.Run(ctx, "unstage volume "+volumeID, []string{VolumeKey(volumeID)}, func(ctx context.Context) error {
		return e.unstage(ctx, volumeID, stagingPath)
	})
}

func (e *Engine) unstage(ctx context.Context, volumeID, stagingPath string) error {
	devices, err := e.backend.Devices(ctx, volumeID)
	if err != nil {
		return err
	}
	mountPoint, err := e.paths.Resolve("staging_target_path", stagingPath)
	switch {
	case err == nil:
		defer closeQuietly(mountPoint)
		err = e.clearStaging(ctx, mountPoint, devices)
	case errors.Is(err, backend.ErrNotFound): // no directory, so no mount there
		err = refusePublished(devices, stagingPath)
	}
	if err != nil {
		return err
	}
	if err := e.points.Hit("node/unstage/cleared"); err != nil {
		return err
	}
	if err := e.backend.CloseDevice(ctx, volumeID); err != nil {
		return err
	}
	return e.points.Hit("node/unstage/closed")
}

// clearStaging takes the filesystem, or the bound device, out of the staging
// directory, after making sure that the volume is not published.
func (e *Engine) clearStaging(ctx context.Context, mountPoint *mount.Point, devices []backend.Device) error {
	if err := refusePublished(devices, mountPoint.Real()); err != nil {
		return err
	}
	if err := e.clearBound(ctx, mountPoint, devices); err != nil {
		return err
	}
	return e.clear(ctx, mountPoint, devices, "node/unstage")
}

// clearBound removes the file that shows a raw block device. When the staging
// path is a mount point, the volume is a filesystem, and "device" a name in it
// that belongs to the workload.
func (e *Engine) clearBound(ctx context.Context, directory *mount.Point, devices []backend.Device) error {
	node, err := directory.Open()
	if err != nil {
		return ignoreAbsent(err)
	}
	filesystem := node.MountRoot || !node.Dir
	closeQuietly(node)
	if filesystem {
		return nil
	}
	bound, err := e.paths.Resolve("staging_target_path", filepath.Join(directory.Path, stagedNode))
	if err != nil {
		return err
	}
	defer closeQuietly(bound)
	if err := e.clear(ctx, bound, devices, "node/unstage"); err != nil {
		return err
	}
	return bound.Remove()
}

// refusePublished refuses callers that unstage too early: detaching the device of a
// published volume would lose its writes.
func refusePublished(devices []backend.Device, staging string) error {
	uses, err := usesOf(devices, staging, filepath.Join(staging, stagedNode))
	if err != nil {
		return err
	}
	if len(uses) > 0 {
		return fmt.Errorf("%w: the volume is still mounted at %s; unpublish it there first", backend.ErrInUse, several(uses))
	}
	return nil
}
