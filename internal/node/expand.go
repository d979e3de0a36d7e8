package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// ExpandRequest asks this machine to follow a volume that has grown.
// Capability is nil when the caller does not give it.
type ExpandRequest struct {
	VolumeID, VolumePath, StagingPath string
	Range                             backend.SizeRange
	Capability                        *backend.Capability
}

// Expand makes this machine see the volume's size and grows the filesystem to
// it, online and without a process. It returns the volume's size in bytes.
// ErrNotFound when the volume is not at the path. ErrOutOfRange when the volume
// is smaller than required or larger than the limit: its controller half must
// grow it first. ErrPrecondition when it is mounted read-only everywhere.
func (e *Engine) Expand(ctx context.Context, r ExpandRequest) (int64, error) {
	if err := checkID(r.VolumeID); err != nil {
		return 0, err
	}
	if err := e.paths.CheckPath("volume_path", r.VolumePath); err != nil {
		return 0, err
	}
	if r.StagingPath != "" {
		if err := e.paths.CheckPath("staging_target_path", r.StagingPath); err != nil {
			return 0, err
		}
	}
	if err := r.Range.Check(); err != nil {
		return 0, err
	}
	keys := []string{VolumeKey(r.VolumeID)}
	return concurrency.RunResult(ctx, e.calls, "expand volume "+r.VolumeID, keys,
		func(ctx context.Context) (int64, error) {
			return e.expand(ctx, r)
		})
}

func (e *Engine) expand(ctx context.Context, r ExpandRequest) (int64, error) {
	node, devices, err := e.volumeAt(ctx, r.VolumeID, r.VolumePath)
	if err != nil {
		return 0, err
	}
	defer closeQuietly(node)
	size, err := e.backend.ResizeDevice(ctx, r.VolumeID)
	if err != nil {
		return 0, err
	}
	if err := e.points.Hit("node/expand/device"); err != nil {
		return 0, err
	}
	if size < r.Range.Required || (r.Range.Limit > 0 && size > r.Range.Limit) {
		return 0, fmt.Errorf("%w: the volume has %d bytes; requested are %d to %d (0: no limit)",
			backend.ErrOutOfRange, size, r.Range.Required, r.Range.Limit)
	}
	if node.Block || (r.Capability != nil && r.Capability.Block) {
		return size, nil
	}
	within, err := e.sizeShown(ctx, node, devices, size, r.VolumeID)
	if err != nil {
		return 0, err
	}
	if err := e.growMounted(ctx, node, devices, within, r); err != nil {
		return 0, err
	}
	return size, e.points.Hit("node/expand/grown")
}

// sizeShown is how large the filesystem can get: as large as the volume, or less
// where it is on one of several devices, such as a partition.
func (e *Engine) sizeShown(
	ctx context.Context, node *mount.Node, devices []backend.Device, size int64, volumeID string,
) (int64, error) {
	if len(devices) < 2 {
		return size, nil
	}
	number, err := shownDevice(node)
	if err != nil {
		return 0, err
	}
	now, err := e.backend.Devices(ctx, volumeID)
	if err != nil {
		return 0, err
	}
	for _, device := range now {
		if device.Number == number {
			return device.Size, nil
		}
	}
	return size, nil
}

// growMounted grows the filesystem through a mount that can be written to: the
// one that was named, the staged one, or any other of the device.
func (e *Engine) growMounted(ctx context.Context, node *mount.Node, devices []backend.Device, size int64, r ExpandRequest) error {
	fsType, err := node.FilesystemType()
	if err != nil {
		return err
	}
	readOnly, err := node.ReadOnly()
	if err != nil {
		return err
	}
	if !readOnly {
		return growAt(ctx, node, fsType, size)
	}
	return e.growElsewhere(ctx, devices, fsType, size, r)
}

func growAt(ctx context.Context, node *mount.Node, fsType string, size int64) error {
	dir, err := node.OpenDir()
	if err != nil {
		return err
	}
	err = growMounted(ctx, dir, fsType, size)
	return errors.Join(err, dir.Close())
}

func (e *Engine) growElsewhere(ctx context.Context, devices []backend.Device, fsType string, size int64, r ExpandRequest) error {
	paths, err := mountsOf(devices)
	if err != nil {
		return err
	}
	if r.StagingPath != "" {
		paths = slices.Insert(paths, 0, r.StagingPath)
	}
	for _, path := range paths {
		done, err := e.growThrough(ctx, path, devices, fsType, size)
		if done || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the filesystem is mounted read-only; it grows when it is staged for writing",
		backend.ErrPrecondition)
}

// growThrough tries one path; false when it is not a writable mount of the
// volume.
func (e *Engine) growThrough(ctx context.Context, path string, devices []backend.Device, fsType string, size int64) (bool, error) {
	node, err := e.open("volume_path", path)
	if err != nil {
		return false, nil // not a mount of the volume, or gone
	}
	defer closeQuietly(node)
	readOnly, err := node.ReadOnly()
	if err != nil || readOnly || !owns(node, devices) {
		return false, nil
	}
	return true, growAt(ctx, node, fsType, size)
}
