package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// tableLimit bounds the time in which Windows must move a GPT's end to a disk's new end.
const tableLimit = 5 * time.Second

// Resize grows the partition, then the filesystem in it, to the size that the caller
// gave, in whole clusters; otherwise it returns an error. After a crash between the two
// the filesystem is smaller than its partition: the next Resize grows it, even if the
// partition need not grow.
func (v volumes) Resize(ctx context.Context, volumeID string, size int64) (int64, error) {
	if size < 0 {
		return 0, fmt.Errorf("%w: a size of %d bytes; give 0 for all space, or more", backend.ErrInvalid, size)
	}
	var total int64
	err := v.change(ctx, volumeID, nil, func(ctx context.Context, name string) (err error) {
		total, err = v.resize(ctx, name, size)
		return during(err, "grow volume %s", name)
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}

func (v volumes) resize(ctx context.Context, name string, size int64) (int64, error) {
	extent, err := v.whole(name)
	if err != nil {
		return 0, err
	}
	ntfs, err := v.growable(name)
	if err != nil {
		return 0, err
	}
	length, err := withDisk(v.Host, extent.Disk, win32.ReadWrite, func(device win32.Device) (int64, error) {
		// Before the disk was open, its number could become another's.
		if now, err := v.whole(name); err != nil || now != extent {
			return 0, errors.Join(fmt.Errorf("%w: the volume's disk changed meanwhile; repeat the call", backend.ErrUnavailable), err)
		}
		return growPartition(ctx, device, extent.Offset, ntfs, size)
	})
	if err != nil {
		return 0, err
	}
	if err := v.growFilesystem(name, length); err != nil {
		return 0, err
	}
	space, err := v.machine.Volumes.FreeSpace(name)
	if err != nil {
		return 0, failed(err, "read its free space")
	}
	return int64(space.Total), nil
}

// growable returns the data of NTFS about the volume; other filesystems do not grow.
func (v volumes) growable(name string) (win32.NTFSVolumeData, error) {
	fileSystem, err := v.filesystemOf(name)
	if err != nil {
		return win32.NTFSVolumeData{}, err
	}
	if fileSystem != ntfsName {
		return win32.NTFSVolumeData{}, fmt.Errorf("%w: its filesystem is %q, and only %s grows", backend.ErrPrecondition,
			fileSystem, ntfsName)
	}
	return v.ntfsOf(name)
}

// growPartition returns the partition's new length.
func growPartition(
	ctx context.Context, device win32.Device, offset int64, ntfs win32.NTFSVolumeData, desired int64,
) (int64, error) {
	plan, err := inspectForGrowth(ctx, device)
	if err != nil {
		return 0, err
	}
	plan.offset, plan.cluster, plan.desired = offset, int64(ntfs.BytesPerCluster), desired
	before, _ := partitionAt(plan.layout, offset)
	bytes, err := plan.plan()
	if err != nil {
		return 0, err
	}
	if plan.isHeldUp() {
		return 0, fmt.Errorf("%w: the disk has %d bytes, but its partition table still ends at %d; rescan, and repeat the call",
			backend.ErrUnavailable, plan.disk, tableEnd(plan.layout, plan.disk, plan.sector))
	}
	if bytes == 0 {
		return before.Length, nil
	}
	if err := control(device, win32.IoctlDiskGrowPartition,
		win32.GrowPartition{Number: before.Number, Bytes: bytes}.Encode()); err != nil {
		return 0, err
	}
	if err := control(device, win32.IoctlDiskUpdateProperties, nil); err != nil {
		return 0, err
	}
	layout, err := layoutOf(device)
	if err != nil {
		return 0, err
	}
	after, found := partitionAt(layout, offset)
	if !found || after.Length < before.Length+bytes {
		return 0, fmt.Errorf("%v answered success, but the partition has %d bytes; it had %d and should have %d more",
			win32.IoctlDiskGrowPartition, after.Length, before.Length, bytes)
	}
	return after.Length, nil
}

// updateDriveSize makes Windows read a disk's size for its partition table too:
// IOCTL_DISK_UPDATE_PROPERTIES alone may not move the end of a GPT. A driver that does
// not know the code keeps no such state.
func updateDriveSize(device win32.Device) error {
	_, err := device.Control(win32.IoctlDiskUpdateDriveSize, nil, make([]byte, win32.DiskGeometrySize))
	if cannot(err) {
		return nil
	}
	return failed(err, "%v", win32.IoctlDiskUpdateDriveSize)
}

// inspectForGrowth makes Windows read the disk's size, and returns the state for a plan.
// It repeats that while the partition table ends where the disk ended before: the
// partition manager moves the table's copy.
func inspectForGrowth(ctx context.Context, device win32.Device) (growth, error) {
	var g growth
	_, err := poll(ctx, tableLimit, func() (bool, error) {
		if err := updateDriveSize(device); err != nil {
			return false, err
		}
		if err := control(device, win32.IoctlDiskUpdateProperties, nil); err != nil {
			return false, err
		}
		geometry, err := geometryOf(device)
		if err != nil {
			return false, err
		}
		length, err := lengthOf(device)
		if err != nil {
			return false, err
		}
		layout, err := layoutOf(device)
		if err != nil {
			return false, err
		}
		g = growth{layout: layout, disk: length, sector: int64(geometry.BytesPerSector)}
		return !tableIsBehind(layout, length, g.sector), nil
	})
	return g, err
}

// growFilesystem makes NTFS as large as its partition, and reads it back.
func (v volumes) growFilesystem(name string, partition int64) error {
	ntfs, err := v.ntfsOf(name)
	if err != nil || !filesystemIsBehind(ntfs, partition) {
		return err
	}
	extend := win32.ExtendVolume{Sectors: partition / int64(ntfs.BytesPerSector)}
	grow := func(device win32.Device) error { return control(device, win32.FsctlExtendVolume, extend.Encode()) }
	if _, err := withVolume(v.Host, name, win32.ReadWrite, noResult(grow)); err != nil {
		return err
	}
	after, err := v.ntfsOf(name)
	if err != nil {
		return err
	}
	if filesystemIsBehind(after, partition) {
		return fmt.Errorf("%v answered success, but the filesystem has %d sectors of the partition's %d",
			win32.FsctlExtendVolume, after.Sectors, extend.Sectors)
	}
	return nil
}
