package windows

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// Expand makes Windows see the disk's size and grows partition and filesystem to
// it, online. It returns the disk's size in bytes. ErrNotFound if the volume is not at
// the path. ErrOutOfRange if the disk is larger than the limit, or, after growthPolls
// polls, smaller than required: the controller must grow it first.
func (e *Engine) Expand(ctx context.Context, r node.ExpandRequest) (int64, error) {
	if err := checkID(r.VolumeID); err != nil {
		return 0, err
	}
	path, err := e.path("volume_path", r.VolumePath)
	if err != nil {
		return 0, err
	}
	if r.StagingPath != "" {
		if _, err := e.path("staging_target_path", r.StagingPath); err != nil {
			return 0, err
		}
	}
	if r.Capability != nil && r.Capability.Block {
		return 0, checkCapability(*r.Capability, false)
	}
	if err := r.Range.Check(); err != nil {
		return 0, err
	}
	keys := []string{node.VolumeKey(r.VolumeID)}
	return concurrency.RunResult(ctx, e.calls, "expand volume "+r.VolumeID, keys, func(ctx context.Context) (int64, error) {
		return e.expand(ctx, r, path)
	})
}

func (e *Engine) expand(ctx context.Context, r node.ExpandRequest, path string) (int64, error) {
	there, err := e.volumeAt(ctx, r.VolumeID, path)
	if err != nil {
		return 0, err
	}
	size, err := e.sizeOf(ctx, *there.disk, r.Range.Required)
	if err != nil {
		return 0, err
	}
	if size < r.Range.Required || (r.Range.Limit > 0 && size > r.Range.Limit) {
		return 0, fmt.Errorf("%w: disk %d has %d bytes; required are %d to %d (0: no limit)", backend.ErrOutOfRange,
			there.disk.Number, size, r.Range.Required, r.Range.Limit)
	}
	if err := e.points.Hit("winnode/expand/disk"); err != nil {
		return 0, err
	}
	if _, err := e.host.Volumes.Resize(ctx, there.volume, 0); err != nil {
		return 0, fmt.Errorf("grow %s: %w", there.volume, err)
	}
	if err := e.points.Hit("winnode/expand/grown"); err != nil {
		return 0, err
	}
	return size, e.verify(ctx, r.VolumeID, nil, there.volume)
}

// growthPolls bounds the polls of a disk until it shows its growth. The growth was complete
// for the controller before the orchestrator called NodeExpandVolume.
const growthPolls = 8

// sizeOf returns the disk's size, polled until it is as large as required or
// growthPolls are spent.
func (e *Engine) sizeOf(ctx context.Context, disk api.Disk, required int64) (int64, error) {
	for poll := 1; ; poll++ {
		if err := e.host.Disks.Rescan(ctx); err != nil {
			return 0, fmt.Errorf("rescan for the disk's size: %w", err)
		}
		size, err := e.host.Disks.Size(ctx, disk.Number)
		if err != nil {
			return 0, fmt.Errorf("size of disk %d: %w", disk.Number, err)
		}
		if size >= required || poll == growthPolls {
			return size, nil
		}
		if concurrency.Sleep(ctx, e.interval) != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// volumeAt finds the volume at a path. ErrNotFound if it is not mounted there.
func (e *Engine) volumeAt(ctx context.Context, volumeID, path string) (mounted, error) {
	there, err := e.at(ctx, volumeID, path, nil)
	if err != nil {
		return there, err
	}
	if !there.matches {
		return there, fmt.Errorf("%w: the volume is not at %s", backend.ErrNotFound, path)
	}
	return there, nil
}

// Stats measures the volume at a path at which it is staged or published. It ignores the
// staging path, its last argument. ErrNotFound if the volume is not at the path.
func (e *Engine) Stats(ctx context.Context, volumeID, volumePath, _ string) (node.Stats, error) {
	if err := checkID(volumeID); err != nil {
		return node.Stats{}, err
	}
	path, err := e.path("volume_path", volumePath)
	if err != nil {
		return node.Stats{}, err
	}
	key := "stats " + volumeID + " " + path
	return concurrency.RunResult(ctx, e.calls, "stats of volume "+volumeID, []string{key}, func(ctx context.Context) (node.Stats, error) {
		there, err := e.volumeAt(ctx, volumeID, path)
		if err != nil {
			return node.Stats{}, err
		}
		measured, err := e.host.Volumes.Stats(ctx, there.volume)
		if err != nil {
			return node.Stats{}, fmt.Errorf("measure %s: %w", there.volume, err)
		}
		return node.Stats{Bytes: node.Usage{Total: measured.Total, Used: measured.Used, Available: measured.Total - measured.Used}}, nil
	})
}
