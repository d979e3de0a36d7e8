package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// Usage counts bytes or inodes.
type Usage struct {
	Total, Used, Available int64
}

// Stats has the used and available space of a volume. A raw block volume has only
// Bytes.Total; Inodes is nil if the filesystem has no fixed number of them.
type Stats struct {
	Block  bool
	Bytes  Usage
	Inodes *Usage
}

// Stats measures the volume at a path where it is staged or published. The last
// argument, the staging path, is not used. The error is ErrNotFound if the volume is
// not at the path. If the device does not answer, Stats returns when ctx ends.
func (e *Engine) Stats(ctx context.Context, volumeID, volumePath, _ string) (Stats, error) {
	if err := checkID(volumeID); err != nil {
		return Stats{}, err
	}
	if err := e.paths.CheckPath("volume_path", volumePath); err != nil {
		return Stats{}, err
	}
	// One call at a time: each further call for a dead device would hang as well.
	key := "stats " + volumeID + " " + volumePath
	return concurrency.RunResult(ctx, e.calls, "stats of volume "+volumeID, []string{key},
		func(ctx context.Context) (Stats, error) {
			return e.measure(ctx, volumeID, volumePath)
		})
}

func (e *Engine) measure(ctx context.Context, volumeID, path string) (Stats, error) {
	node, devices, err := e.volumeAt(ctx, volumeID, path)
	if err != nil {
		return Stats{}, err
	}
	defer closeQuietly(node)
	if node.Block {
		for _, device := range devices {
			if device.Number == node.Device {
				return Stats{Block: true, Bytes: Usage{Total: device.Size}}, nil
			}
		}
	}
	measured, err := fs.ReadStats(node.File())
	if err != nil {
		return Stats{}, err
	}
	stats := Stats{Bytes: Usage(measured.Bytes)}
	if measured.Inodes != nil {
		inodes := Usage(*measured.Inodes)
		stats.Inodes = &inodes
	}
	return stats, nil
}

// volumeAt opens the volume at a path and verifies its device. The error is
// ErrNotFound if the volume is not at the path.
func (e *Engine) volumeAt(ctx context.Context, volumeID, path string) (*mount.Node, []backend.Device, error) {
	devices, err := e.devices(ctx, volumeID)
	if err != nil {
		return nil, nil, err
	}
	if len(devices) == 0 {
		return nil, nil, fmt.Errorf("%w: the volume has no device on this machine", backend.ErrNotFound)
	}
	node, err := e.open("volume_path", path)
	if err != nil {
		return nil, nil, err
	}
	if !owns(node, devices) {
		return nil, nil, errors.Join(fmt.Errorf("%w: the volume is not at %s", backend.ErrNotFound, path), node.Close())
	}
	return node, devices, nil
}

// devices lists the devices of a volume, an inline one included.
func (e *Engine) devices(ctx context.Context, volumeID string) ([]backend.Device, error) {
	if inlineHandle.MatchString(volumeID) {
		volume, err := e.inlineVolume(ctx, volumeID)
		if err != nil {
			return nil, err
		}
		if volume != nil {
			volumeID = volume.VolumeID
		}
	}
	return e.backend.Devices(ctx, volumeID)
}
