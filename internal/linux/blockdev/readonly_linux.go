package blockdev

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// SetReadOnly makes a block device refuse writes, or accept them again, for all
// of its users at once (BLKROSET). There is no coherent way to give some users
// of a device write access and others none: a second device over the same blocks has
// its own page cache, and shows stale data for as long as it is open. ErrPrecondition
// if the device stays as it was, as one whose file or hardware cannot be written does.
func SetReadOnly(device *os.File, readOnly bool) error {
	value := 0
	if readOnly {
		value = 1
		if err := device.Sync(); err != nil {
			return fmt.Errorf("make %s read-only: write dirty pages: %w", device.Name(), err)
		}
	}
	if err := unix.IoctlSetPointerInt(int(device.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("set read-only = %t of %s: %w", readOnly, device.Name(), err)
	}
	now, err := IsReadOnly(device)
	if err == nil && now != readOnly {
		err = fmt.Errorf("%w: %s has read-only = %t and cannot be changed", backend.ErrPrecondition, device.Name(), now)
	}
	return err
}

// IsReadOnly reports whether a block device refuses writes.
func IsReadOnly(device *os.File) (bool, error) {
	value, err := unix.IoctlGetInt(int(device.Fd()), unix.BLKROGET)
	if err != nil {
		return false, fmt.Errorf("read whether %s can be written: %w", device.Name(), err)
	}
	return value != 0, nil
}

// SetReadOnly makes the device refuse writes or accept them again; see the
// function of this name.
func (l *Loop) SetReadOnly(readOnly bool) error {
	return l.withOpen(func() error {
		if err := l.read(); err != nil || l.ReadOnly == readOnly {
			return err
		}
		if err := SetReadOnly(l.file, readOnly); err != nil {
			return err
		}
		return l.read()
	})
}

// makeWritable takes back SetReadOnly. The kernel keeps that with the number of
// the device and not with its file, so the next file would inherit it.
func makeWritable(device *os.File) error {
	readOnly, err := IsReadOnly(device)
	if err != nil || !readOnly {
		return err
	}
	return unix.IoctlSetPointerInt(int(device.Fd()), unix.BLKROSET, 0)
}
