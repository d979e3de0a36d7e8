package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Detach frees the device. ErrInUse when a mount or a process uses it, in
// which case nothing has changed; a device that is free already, or belongs to
// another file by now, is not an error.
func (l *Loop) Detach() error {
	if err := l.Close(); err != nil {
		return err
	}
	// Another file's device must not be opened exclusively, not even for an
	// instant: its owner may be mounting it.
	if gone, err := l.gone(); gone || err != nil {
		return err
	}
	device, err := os.OpenFile(l.Path, os.O_RDONLY|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("detach %s: %w: it is mounted or opened exclusively", l.Path, backend.ErrInUse)
	case errors.Is(err, unix.ENXIO), errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("detach %s: %w", l.Path, err)
	}
	if !l.isOurs(device) {
		return device.Close()
	}
	// With other openers LOOP_CLR_FD does not fail: it marks the device for
	// removal at the last close (loop_clr_fd, drivers/block/loop.c).
	err = errors.Join(makeWritable(device), freeLoop(device), device.Close())
	if err != nil {
		return fmt.Errorf("detach %s: %w", l.Path, err)
	}
	return l.awaitGone()
}

// awaitGone waits for processes that only inspect devices (udev, a listing), and
// cancels the removal if a process keeps using the device.
func (l *Loop) awaitGone() error {
	for range releaseTries {
		gone, err := l.gone()
		if err != nil {
			return err
		}
		if gone {
			return l.forgetLimit()
		}
		time.Sleep(releasePause)
	}
	if err := l.keep(); err != nil {
		return err
	}
	return fmt.Errorf("detach %s: %w: a process has it open", l.Path, backend.ErrInUse)
}

// gone reports whether the device is no longer backed by the file. It avoids opening
// the device, since an open device stays attached. A file that was renamed may still
// be the same file.
func (l *Loop) gone() (bool, error) {
	backing, err := backingFile(filepath.Base(l.Path))
	if err != nil {
		return false, fmt.Errorf("detach %s: %w", l.Path, err)
	}
	if backing == "" || backing == l.BackingFile {
		return backing == "", nil
	}
	device, err := os.OpenFile(l.Path, os.O_RDONLY, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("detach %s: %w", l.Path, err)
	}
	defer closeQuietly(device)
	return !l.isOurs(device), nil
}

// keep undoes what Detach did to a device that stays: it clears the mark that
// LOOP_CLR_FD left, if the device had none before, and restores its access.
func (l *Loop) keep() error {
	device, err := os.OpenFile(l.Path, os.O_RDONLY, 0)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", l.Path, err)
	}
	defer closeQuietly(device)
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if errors.Is(err, unix.ENXIO) || (err == nil && (status.Device != l.device || status.Inode != l.inode)) {
		return nil
	}
	if isFilesystemFailure(err) {
		return nil // the device of a failed filesystem may go with its last user
	}
	if err != nil {
		return fmt.Errorf("keep %s: %w", l.Path, err)
	}
	if l.ReadOnly && !l.FileReadOnly {
		if err := SetReadOnly(device, true); err != nil {
			return fmt.Errorf("keep %s: %w", l.Path, err)
		}
	}
	if l.AutoClear {
		return nil
	}
	status.Flags &^= unix.LO_FLAGS_AUTOCLEAR
	if err := unix.IoctlLoopSetStatus64(int(device.Fd()), status); err != nil {
		return fmt.Errorf("keep %s: %w", l.Path, err)
	}
	return nil
}

func (l *Loop) isOurs(device *os.File) bool {
	now := &Loop{Index: l.Index, Path: l.Path, file: device}
	return now.read() == nil && now.sameFile(l)
}

// freeLoop detaches an open loop device; one without a file is not an error.
func freeLoop(device *os.File) error {
	_, err := unix.IoctlRetInt(int(device.Fd()), unix.LOOP_CLR_FD)
	if errors.Is(err, unix.ENXIO) {
		return nil
	}
	return err
}
