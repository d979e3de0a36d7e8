package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// volumeLimit bounds the wait for a partition's volume. Windows lists it within seconds.
const volumeLimit = 30 * time.Second

func volumeKey(name string) string { return "volume " + name }

// withVolume opens a volume for the time of do.
func withVolume[T any](h *Host, name string, access win32.Access, do func(win32.Device) (T, error)) (T, error) {
	device, err := h.machine.Volumes.Open(name, access)
	if err != nil {
		var none T
		return none, failed(err, "open volume %s", name)
	}
	defer h.close(device, name)
	value, err := do(device)
	return value, during(err, "volume %s", name)
}

// extentsOf returns the stretches of disks that a volume is on.
func (h *Host) extentsOf(name string) (win32.VolumeDiskExtents, error) {
	return withVolume(h, name, win32.Query, func(device win32.Device) (win32.VolumeDiskExtents, error) {
		return answer(device, win32.IoctlVolumeGetVolumeDiskExtents, nil, win32.DecodeVolumeDiskExtents)
	})
}

// whole returns the extent of a volume that has one extent on one disk, as all volumes
// do that this proxy makes.
func (h *Host) whole(name string) (win32.DiskExtent, error) {
	extents, err := h.extentsOf(name)
	if err != nil {
		return win32.DiskExtent{}, err
	}
	switch len(extents) {
	case 0:
		return win32.DiskExtent{}, fmt.Errorf("%w: volume %s has no extent on a disk", backend.ErrPrecondition, name)
	case 1:
		return extents[0], nil
	}
	return win32.DiskExtent{}, fmt.Errorf("%w: volume %s is spanned over %d extents; only volumes with one extent are supported",
		backend.ErrPrecondition, name, len(extents))
}

// found is a volume on a disk.
type found struct {
	name string
	at   win32.DiskExtent
}

// volumesOn returns the volumes that have an extent on a disk, by its offset. A volume
// that does not answer is left out: it is another disk's, or its disk does not answer
// either.
func (h *Host) volumesOn(ctx context.Context, disk uint32) ([]found, error) {
	on, _, err := h.findVolumes(ctx, disk)
	return on, err
}

// findVolumes also returns the volumes whose location is unknown.
func (h *Host) findVolumes(ctx context.Context, disk uint32) (on []found, silent []string, err error) {
	names, err := ask(ctx, h.tasks, "the list of volumes", func(context.Context) ([]string, error) {
		names, err := h.machine.Volumes.All()
		return names, failed(err, "list volumes")
	})
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	on = each(names, func(name string) (found, bool) {
		extents, err := askBounded(ctx, h.tasks, volumeKey(name), func(context.Context) (win32.VolumeDiskExtents, error) {
			return h.extentsOf(name)
		})
		if err != nil {
			h.logger.Debug("the location of a volume is unknown", "volume", name, "error", err)
			if !errors.Is(err, backend.ErrNotFound) { // it still exists
				mu.Lock()
				defer mu.Unlock()
				silent = append(silent, name)
			}
			return found{}, false
		}
		for _, extent := range extents {
			if extent.Disk == disk {
				return found{name, extent}, true
			}
		}
		return found{}, false
	})
	slices.SortFunc(on, func(a, b found) int { return cmp.Compare(a.at.Offset, b.at.Offset) })
	return on, silent, ctx.Err()
}

// volumeAt waits for the volume of the partition that begins at an offset.
func (h *Host) volumeAt(ctx context.Context, disk uint32, offset int64) (string, error) {
	var name string
	arrived, err := poll(ctx, volumeLimit, func() (bool, error) {
		on, err := h.volumesOn(ctx, disk)
		if i := slices.IndexFunc(on, func(f found) bool { return f.at.Offset == offset }); i >= 0 {
			name, err = canonical(on[i].name)
		}
		return name != "", err
	})
	if err != nil {
		return "", fmt.Errorf("wait for the volume at byte %d of disk %d: %w", offset, disk, err)
	}
	if !arrived {
		return "", fmt.Errorf("%w: Windows has made no volume of the partition at byte %d of disk %d within %s; rescan, and repeat the call",
			backend.ErrUnavailable, offset, disk, volumeLimit)
	}
	return name, nil
}

// canonical returns a volume's name in the spelling of responses.
func canonical(name string) (string, error) {
	parsed, err := win32.ParseVolumeName(name)
	if err != nil {
		return "", fmt.Errorf("the name that Windows gives a volume: %w", err)
	}
	return parsed, nil
}

// partitionsOf reads a disk's table, and whether the disk is online.
func (h *Host) partitionsOf(ctx context.Context, disk uint32) (win32.DriveLayout, bool, error) {
	var online bool
	layout, err := question(ctx, h, disk, func(device win32.Device) (win32.DriveLayout, error) {
		attributes, err := attributesOf(device)
		if err != nil {
			return win32.DriveLayout{}, err
		}
		online = attributes.Attributes&win32.DiskAttributeOffline == 0
		return layoutOf(device)
	})
	if err != nil {
		return layout, false, err
	}
	return layout, online, nil
}

// OnDisk waits until each partition for which Windows makes a volume has it: a caller
// that has just partitioned the disk needs the volume.
func (v volumes) OnDisk(ctx context.Context, disk, partition uint32) ([]string, error) {
	layout, online, err := v.partitionsOf(ctx, disk)
	if err != nil {
		return nil, err
	}
	parts := usedPartitions(layout)
	if partition != 0 {
		parts = slices.DeleteFunc(parts, func(p win32.Partition) bool { return p.Number != partition })
		if len(parts) == 0 {
			return nil, fmt.Errorf("%w: disk %d has no partition %d", backend.ErrNotFound, disk, partition)
		}
	}
	var names []string
	arrived, err := poll(ctx, volumeLimit, func() (all bool, err error) {
		on, err := v.volumesOn(ctx, disk)
		if err != nil {
			return false, err
		}
		names, all, err = match(on, parts)
		return all || !online, err
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the volumes of disk %d: %w", disk, err)
	}
	if !arrived && len(names) == 0 {
		return nil, fmt.Errorf("%w: Windows has made no volume of the partitions of disk %d within %s; rescan, and repeat "+
			"the call", backend.ErrUnavailable, disk, volumeLimit)
	}
	return names, nil
}

// match returns the volumes of partitions, and reports whether all are listed.
func match(on []found, parts []win32.Partition) (names []string, all bool, err error) {
	all = true
	for _, p := range parts {
		i := slices.IndexFunc(on, func(f found) bool { return f.at.Offset == p.Offset })
		if i < 0 {
			all = all && !hasVolume(p)
			continue
		}
		name, err := canonical(on[i].name)
		if err != nil {
			return nil, false, err
		}
		names = append(names, name)
	}
	return names, all, nil
}

// about runs a query on the volume that a caller names.
func about[T any](ctx context.Context, v volumes, volumeID string, do func(name string) (T, error)) (T, error) {
	name, err := win32.ParseVolumeName(volumeID)
	if err != nil {
		var none T
		return none, err
	}
	return ask(ctx, v.tasks, volumeKey(name), func(context.Context) (T, error) { return do(name) })
}

// FileSystem returns the name by Windows of the filesystem. After an interrupted Format
// Windows may report a damaged one. FileSystem calls that volume raw, so that the caller
// repeats Format, which inspects the blocks.
func (v volumes) FileSystem(ctx context.Context, volumeID string) (string, error) {
	return about(ctx, v, volumeID, func(name string) (string, error) {
		found, err := v.filesystemOf(name)
		if !isErrno(err, win32.ErrorFileCorrupt, win32.ErrorDiskCorrupt) {
			return found, err
		}
		if begun, unknown := v.hasBegun(name); unknown == nil && begun {
			return "", nil
		}
		return "", err
	})
}

// filesystemOf is "" for a raw volume.
func (h *Host) filesystemOf(name string) (string, error) {
	info, err := h.machine.Volumes.Information(name)
	if isErrno(err, win32.ErrorUnrecognizedVolume) {
		return "", nil
	}
	if err != nil {
		return "", failed(err, "inspect the filesystem of volume %s", name)
	}
	if info.FileSystem == "RAW" { // by some versions, for a volume on an unusual device
		return "", nil
	}
	return info.FileSystem, nil
}

// Stats ignores quotas.
func (v volumes) Stats(ctx context.Context, volumeID string) (api.VolumeStats, error) {
	return about(ctx, v, volumeID, func(name string) (api.VolumeStats, error) {
		space, err := v.machine.Volumes.FreeSpace(name)
		if err != nil {
			return api.VolumeStats{}, failed(err, "read the free space of volume %s", name)
		}
		return api.VolumeStats{Total: int64(space.Total), Used: int64(space.Total - min(space.Free, space.Total))}, nil
	})
}

// DiskOf works for a volume that is not mounted, too: drivers call it after they have
// unmounted.
func (v volumes) DiskOf(ctx context.Context, volumeID string) (uint32, error) {
	extent, err := about(ctx, v, volumeID, v.whole)
	return extent.Disk, err
}

// Flush writes the volume's cache to its disk.
func (v volumes) Flush(ctx context.Context, volumeID string) error {
	return v.change(ctx, volumeID, nil, func(_ context.Context, name string) error { return v.flushVolume(name) })
}

func (h *Host) flushVolume(name string) error {
	_, err := withVolume(h, name, win32.ReadWrite, noResult(flush))
	return err
}

// change runs an operation with the volume, its disks and the other keys locked. For a
// volume whose disks are gone it locks the volume only.
func (v volumes) change(
	ctx context.Context, volumeID string, more []string, do func(ctx context.Context, name string) error,
) error {
	name, err := win32.ParseVolumeName(volumeID)
	if err != nil {
		return err
	}
	extents, err := ask(ctx, v.tasks, volumeKey(name), func(context.Context) (win32.VolumeDiskExtents, error) { return v.extentsOf(name) })
	if err != nil && !errors.Is(err, backend.ErrNotFound) {
		return err
	}
	keys := append([]string{volumeKey(name)}, more...)
	for _, extent := range extents {
		keys = append(keys, diskKey(extent.Disk))
	}
	return run(ctx, v.tasks, keys, func(ctx context.Context) error { return do(ctx, name) })
}
