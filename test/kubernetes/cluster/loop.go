package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fileID is a file's device and inode: what the kernel keeps of the file behind
// a loop device, whatever the path was in the mount namespace where it was set.
type fileID struct{ device, inode uint64 }

// detachLoops detaches the loop devices whose files are below dir, and waits
// until they are free. Only such loop devices outlive the namespaces.
func detachLoops(dir string) error {
	devices, err := attachedLoops()
	if err != nil || len(devices) == 0 {
		return err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := detachLoop(device, files); err != nil {
			return err
		}
	}
	return nil
}

// attachedLoops lists the devices that have a file.
func attachedLoops() ([]string, error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	for i, path := range found {
		found[i] = filepath.Join("/dev", strings.Split(path, "/")[3])
	}
	return found, nil
}

// filesBelow knows the regular files of a directory, in which nothing is
// mounted: it is seen from outside the nodes' namespaces.
func filesBelow(dir string) (map[fileID]bool, error) {
	files := make(map[fileID]bool)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a node that runs removes what it made
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			if errors.Is(err, unix.ENOENT) {
				return nil
			}
			return fmt.Errorf("cluster: %s: %w", path, err)
		}
		files[fileID{stat.Dev, stat.Ino}] = true
		return nil
	})
	return files, err
}

// detachLoop detaches a device if its file is one of these. The device is held
// open, so that it is the one that was looked at.
func detachLoop(path string, files map[fileID]bool) error {
	device, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			return nil
		}
		return fmt.Errorf("cluster: loop device: %w", err)
	}
	defer func() { _ = device.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return nil // free meanwhile
	}
	if err != nil {
		return fmt.Errorf("cluster: %s: ask for its file: %w", path, err)
	}
	if !files[fileID{info.Device, info.Inode}] {
		return nil
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("cluster: detach %s: %w", path, err)
	}
	// It is detached with the last close, which is this one.
	if err := device.Close(); err != nil {
		return err
	}
	return awaitFree(path, files)
}

// awaitFree waits until the kernel has let go of the file.
func awaitFree(path string, files map[fileID]bool) error {
	return poll(30*time.Second, path+" to be free: who has it open?", func() (bool, error) {
		device, err := os.Open(path)
		if err != nil {
			return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO), nil
		}
		defer func() { _ = device.Close() }()
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		return err != nil || !files[fileID{info.Device, info.Inode}], nil
	})
}
