package host

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Partition is one operation from a blank disk to a volume. After a crash the repeated
// call completes it: from a disk without a table, a table without partitions, a table
// with the reserved partition only, or a partition whose volume has not arrived yet.
//
// It writes nothing before it has read all ranges that can contain a signature and
// found them blank. Otherwise the error names the content, and the disk is not changed:
// it stays offline and read-only too.
func (d disks) Partition(ctx context.Context, disk uint32, expected api.Identity) (string, error) {
	return operate(ctx, d.tasks, []string{diskKey(disk)}, func(ctx context.Context) (string, error) {
		part := noResult(func(device win32.Device) error { return partition(ctx, device) })
		if _, err := withExpected(d.Host, disk, expected, win32.ReadWrite, part); err != nil {
			return "", err
		}
		volume, err := d.firstVolume(ctx, disk)
		if err != nil || expected == (api.Identity{}) {
			return volume, err
		}
		return withExpected(d.Host, disk, expected, win32.Query, func(win32.Device) (string, error) { return volume, nil })
	})
}

// firstVolume waits for the volume of the first partition that has one. It returns ""
// for a disk that is offline.
func (d disks) firstVolume(ctx context.Context, disk uint32) (string, error) {
	layout, online, err := d.partitionsOf(ctx, disk)
	if err != nil || !online {
		return "", err
	}
	for _, p := range usedPartitions(layout) {
		if hasVolume(p) {
			return d.volumeAt(ctx, disk, p.Offset)
		}
	}
	return "", nil
}

// partition makes the table and the partitions that are missing.
func partition(ctx context.Context, device win32.Device) error {
	layout, err := layoutOf(device)
	if err != nil {
		return err
	}
	use := useOf(layout)
	if use == partitioned {
		return nil
	}
	if err := mustBeBlank(ctx, device, layout); err != nil {
		return err
	}
	if err := bringUp(device); err != nil {
		return err
	}
	if use == unpartitioned {
		if layout, err = initialise(device); err != nil {
			return fmt.Errorf("initialise: %w", err)
		}
	}
	return during(addPartitions(device, layout), "partition")
}

// mustBeBlank returns an error unless the disk is blank. On a disk with a table it
// reads the ranges that partitions may have and those of the new partition.
func mustBeBlank(ctx context.Context, device win32.Device, layout win32.DriveLayout) error {
	geometry, err := geometryOf(device)
	if err != nil {
		return err
	}
	ranges := []stretch{{0, geometry.DiskSize}}
	switch useOf(layout) {
	case unusable:
		return fmt.Errorf("%w: it has an %v without partitions, which nothing is added to; clear the disk by hand if it "+
			"is not needed", backend.ErrPrecondition, layout.Style)
	case initialised:
		_, data, err := planPartitions(layout, win32.NewGUID)
		if err != nil {
			return err
		}
		usable := stretch{layout.UsableOffset, min(layout.UsableLength, geometry.DiskSize-layout.UsableOffset)}
		ranges = append(spotsWithin(usable), usable, stretch{data.Offset, data.Length})
	}
	for _, within := range ranges {
		found, err := readContent(ctx, device, within, int64(geometry.BytesPerSector))
		if err != nil {
			return err
		}
		if _, used := found.used(); used {
			return fmt.Errorf("%w: it is not blank: it has %v; it was not changed, so clear it by hand if it is not needed",
				backend.ErrPrecondition, found)
		}
	}
	return nil
}

// bringUp makes a disk online and writable. Windows' SAN policy makes new disks of
// shared buses offline and read-only.
func bringUp(device win32.Device) error {
	const both = win32.DiskAttributeOffline | win32.DiskAttributeReadOnly
	now, err := attributesOf(device)
	if err != nil || now.Attributes&both == 0 {
		return err
	}
	return during(setAttributes(device, both, false), "bring online")
}

// initialise writes a GPT to a disk, and reads it back.
func initialise(device win32.Device) (win32.DriveLayout, error) {
	// Windows may have seen a table only now that the disk is online.
	before, err := layoutOf(device)
	if err != nil {
		return before, err
	}
	if before.Style != win32.StyleRaw {
		return before, fmt.Errorf("%w: it has an %v since it is online; repeat the call",
			backend.ErrUnavailable, before.Style)
	}
	create := win32.CreateDisk{Style: win32.StyleGPT, DiskID: win32.NewGUID(), MaxPartitions: maxPartitions}
	if err := control(device, win32.IoctlDiskCreateDisk, create.Encode()); err != nil {
		return before, err
	}
	if err := control(device, win32.IoctlDiskUpdateProperties, nil); err != nil {
		return before, err
	}
	layout, err := layoutOf(device)
	if err != nil {
		return layout, err
	}
	if layout.Style != win32.StyleGPT || layout.DiskID != create.DiskID {
		return layout, fmt.Errorf("%v answered success, but the disk's table is %v of disk %v",
			win32.IoctlDiskCreateDisk, layout.Style, layout.DiskID)
	}
	return layout, nil
}

// addPartitions writes the partitions, and reads them back.
func addPartitions(device win32.Device, layout win32.DriveLayout) error {
	planned, _, err := planPartitions(layout, win32.NewGUID)
	if err != nil {
		return err
	}
	if err := control(device, win32.IoctlDiskSetDriveLayoutEx, planned.Encode()); err != nil {
		return err
	}
	if err := control(device, win32.IoctlDiskUpdateProperties, nil); err != nil {
		return err
	}
	written, err := layoutOf(device)
	if err != nil {
		return err
	}
	if err := sameEntries(planned, written); err != nil {
		return fmt.Errorf("%v answered success, but %w", win32.IoctlDiskSetDriveLayoutEx, err)
	}
	return nil
}
