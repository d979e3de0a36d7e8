package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// lockLimit bounds the attempts to lock a volume. A virus scanner or the indexer may
// have handles open for a short time after the volume was unmounted.
const lockLimit = 10 * time.Second

// SetOnline brings a disk online and writable, or takes it offline. Windows would take
// it offline without an error while volumes on it are in use. So SetOnline first
// flushes, locks and dismounts each volume; a lock fails while a file is open.
func (d disks) SetOnline(ctx context.Context, disk uint32, expected api.Identity, online bool) error {
	return run(ctx, d.tasks, []string{diskKey(disk)}, func(ctx context.Context) error {
		_, err := withExpected(d.Host, disk, expected, win32.ReadWrite, noResult(func(device win32.Device) error {
			if online {
				return bringUp(device)
			}
			return d.takeDown(ctx, device, disk)
		}))
		return err
	})
}

func (d disks) takeDown(ctx context.Context, device win32.Device, disk uint32) error {
	now, err := attributesOf(device)
	if err != nil || now.Attributes&win32.DiskAttributeOffline != 0 {
		return err
	}
	release, err := d.dismountAll(ctx, device, disk)
	if err != nil {
		return err
	}
	defer release()
	err = setAttributes(device, win32.DiskAttributeOffline, true)
	if err != nil { // the handles of this process may be the cause
		release()
		err = setAttributes(device, win32.DiskAttributeOffline, true)
	}
	return during(err, "take offline")
}

// dismountAll dismounts the volumes of a disk, or none: if one is busy, it unlocks the
// others. They stay locked until release. Otherwise a process could mount one again by
// opening a file, and lose its writes when the disk goes offline.
func (d disks) dismountAll(ctx context.Context, device win32.Device, disk uint32) (release func(), err error) {
	found, silent, err := d.findVolumes(ctx, disk)
	if err != nil {
		return nil, err
	}
	if err := knowsAll(device, found, silent); err != nil {
		return nil, err
	}
	// The volumes were found by the disk's number. As long as the disk answers on the
	// handle, no other disk has the number.
	if _, err := attributesOf(device); err != nil {
		return nil, err
	}
	var locked []win32.Device
	release = func() {
		for _, volume := range locked {
			d.close(volume, diskKey(disk)) // a lock ends with its handle
		}
		locked = nil
	}
	for _, volume := range found {
		device, err := d.lock(ctx, volume.name)
		if err != nil {
			release()
			return nil, err
		}
		locked = append(locked, device)
	}
	for i, device := range locked {
		if err := control(device, win32.FsctlDismountVolume, nil); err != nil {
			release()
			return nil, fmt.Errorf("dismount volume %s: %w", found[i].name, err)
		}
	}
	return release, nil
}

// knowsAll returns an error while a volume whose location is unknown could be on
// the disk: the disk would go offline with files of that volume open.
func knowsAll(device win32.Device, on []found, silent []string) error {
	if len(silent) == 0 {
		return nil
	}
	layout, err := layoutOf(device)
	if err != nil {
		return err
	}
	for _, p := range usedPartitions(layout) {
		if holdsData(p) && !slices.ContainsFunc(on, func(f found) bool { return f.at.Offset == p.Offset }) {
			return fmt.Errorf("%w: the volume of partition %d may be one of those that do not answer now (%s), so the disk "+
				"stays online; repeat the call",
				backend.ErrUnavailable, p.Number, strings.Join(silent, ", "))
		}
	}
	return nil
}

// lock flushes a volume and locks it.
func (d disks) lock(ctx context.Context, volume string) (_ win32.Device, err error) {
	device, err := d.machine.Volumes.Open(volume, win32.ReadWrite)
	if err != nil {
		return nil, failed(err, "open volume %s", volume)
	}
	defer func() {
		if err != nil {
			d.close(device, volume)
		}
	}()
	if err := flush(device); err != nil {
		return nil, fmt.Errorf("flush volume %s: %w", volume, err)
	}
	var last error
	taken, err := poll(ctx, lockLimit, func() (bool, error) {
		last = control(device, win32.FsctlLockVolume, nil)
		if isErrno(last, win32.ErrorAccessDenied, win32.ErrorSharingViolation, win32.ErrorBusy, win32.ErrorLockViolation) {
			return false, nil
		}
		return last == nil, last
	})
	if err != nil {
		return nil, fmt.Errorf("lock volume %s: %w", volume, err)
	}
	if !taken {
		number, _ := errors.AsType[win32.Errno](last)
		return nil, failedAs(backend.ErrInUse, number,
			"%v of volume %s for %s: files on it are open, so its disk stays online", win32.FsctlLockVolume, volume, lockLimit)
	}
	return device, nil
}

// flush writes a volume's cache to its disk. A write-protected volume has nothing to
// flush, and a raw volume has no cache.
func flush(device win32.Device) error {
	err := device.Flush()
	if isErrno(err, win32.ErrorWriteProtect, win32.ErrorUnrecognizedVolume) {
		return nil
	}
	return failed(err, "FlushFileBuffers")
}
