package fs

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// The requests of ioctl_fifreeze(2), _IOWR('X', 119 and 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// Freeze stops writes to the filesystem that the directory f is on, after writing dirty
// pages. ErrBusy when it is frozen already. Writers block until Thaw, however this
// process ends: record the intent first.
func Freeze(f *os.File) error {
	err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("freeze %s: %w: it is frozen already", f.Name(), backend.ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("freeze %s: %w", f.Name(), err)
	}
	return nil
}

// Thaw lets writes continue; a filesystem that is not frozen is not an error.
func Thaw(f *os.File) error {
	err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("thaw %s: %w", f.Name(), err)
	}
	return nil
}

// SyncFS writes out everything dirty of the filesystem that f is on. Errors of
// earlier writes are reported too (syncfs(2), Linux 5.8).
func SyncFS(f *os.File) error {
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync the filesystem of %s: %w", f.Name(), err)
	}
	return nil
}
