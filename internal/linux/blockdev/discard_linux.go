package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// errDiscardStuck: the device number carries a limit of 0 from an earlier use.
var errDiscardStuck = errors.New("discard was turned off for this device number")

// SetDiscard turns discards off for as long as the device has its file: the
// device refuses them, so that neither a mount option nor fstrim(8) punches
// holes into the file. It cannot be enabled again, because the kernel demands that a
// new limit be a multiple of the granularity, which is 0 then (Linux 6.18,
// queue_max_discard_sectors_store); turning it on again is ErrPrecondition and happens
// by attaching the file again.
func (l *Loop) SetDiscard(on bool) error {
	if l.Discard == on {
		return nil
	}
	if on {
		return fmt.Errorf("discard on %s: %w: it can be turned on when the file is attached only",
			l.Path, backend.ErrPrecondition)
	}
	path := filepath.Join(sysBlock, filepath.Base(l.Path), "queue/discard_max_bytes")
	if err := os.WriteFile(path, []byte("0"), 0); err != nil {
		return fmt.Errorf("discard on %s: %w", l.Path, err)
	}
	if limit := l.attribute("queue/discard_max_bytes"); limit != "0" {
		return fmt.Errorf("discard on %s: the limit stayed at %s bytes", l.Path, limit)
	}
	l.Discard = false
	return nil
}

// applyDiscard sets up discard as requested on a device that was just attached. That
// its file cannot have holes punched is left to the caller to see.
func (l *Loop) applyDiscard(on bool) error {
	if !on {
		return l.SetDiscard(false)
	}
	if !l.Discard && l.canDiscard() {
		return errDiscardStuck
	}
	return nil
}

// canDiscard reports whether the backing file allows it, independent of the limit.
func (l *Loop) canDiscard() bool {
	most := l.attribute("queue/discard_max_hw_bytes")
	return most != "" && most != "0"
}

// forgetLimit frees a detached device number without the limit of its
// last use, which the kernel would keep for its next user. A device
// that the kernel cleared by itself keeps it until AttachLoop gets it.
func (l *Loop) forgetLimit() error {
	if l.Discard || !l.canDiscard() {
		return nil
	}
	control, err := os.OpenFile(loopControl, os.O_RDWR, 0)
	if err != nil {
		return nil // the device is detached; that was the task
	}
	defer closeQuietly(control)
	return renew(control, l.Index)
}

// renew removes and adds a free device number, which resets its limits. It does not
// change a number that was attached meanwhile.
func renew(control *os.File, index int) error {
	err := unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_REMOVE, index)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("renew loop device %d: %w", index, err)
	}
	err = unix.IoctlSetInt(int(control.Fd()), unix.LOOP_CTL_ADD, index)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("renew loop device %d: %w", index, err)
	}
	return nil
}
