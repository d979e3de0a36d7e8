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

// fileID is a file's device and inode, by which the kernel identifies the backing file of
// a loop device in any mount namespace.
type fileID struct{ device, inode uint64 }

// loop is a loop device and the file that it has.
type loop struct {
	path   string
	number uint64 // its own device number
	node   fileID // its own file in /dev
	file   fileID
}

// carries reports whether the backing file of above is on a filesystem on this device, or
// is this device itself: the kubelet attaches a loop device to each raw block volume, so
// that the volume's device stays in use.
func (l loop) carries(above loop) bool {
	return above.file.device == l.number || above.file == l.node
}

// detachLoops detaches the loop devices whose files are below dir, and waits
// until they are free. Only such loop devices outlive the namespaces.
func detachLoops(dir string) error {
	all, err := attachedLoops()
	if err != nil || len(all) == 0 {
		return err
	}
	files, err := filesBelow(dir)
	if err != nil {
		return err
	}
	for _, l := range loopsOf(all, files) {
		if err := l.detach(); err != nil {
			return err
		}
	}
	return nil
}

// loopsOf selects the loop devices of these files, and those stacked on them, which
// come first: they keep the device below after all mounts are gone.
func loopsOf(all []loop, files map[fileID]bool) []loop {
	var chosen []loop
	var with func(l loop)
	with = func(l loop) {
		for _, above := range all {
			if l.carries(above) {
				with(above)
			}
		}
		chosen = append(chosen, l)
	}
	for _, l := range all {
		if files[l.file] {
			with(l)
		}
	}
	return chosen
}

// attachedLoops lists the devices with a backing file.
func attachedLoops() ([]loop, error) {
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var all []loop
	for _, path := range found {
		l := loop{path: filepath.Join("/dev", strings.Split(path, "/")[3])}
		device, attached, err := l.open()
		if err != nil {
			return nil, err
		}
		if device == nil {
			continue
		}
		var stat unix.Stat_t
		err = errors.Join(unix.Fstat(int(device.Fd()), &stat), device.Close())
		if err != nil {
			return nil, fmt.Errorf("cluster: %s: %w", l.path, err)
		}
		l.number, l.node, l.file = stat.Rdev, fileID{stat.Dev, stat.Ino}, attached
		all = append(all, l)
	}
	return all, nil
}

// open opens the device and returns its backing file; nil if it has none.
func (l loop) open() (*os.File, fileID, error) {
	device, err := os.Open(l.path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) {
			return nil, fileID{}, nil
		}
		return nil, fileID{}, fmt.Errorf("cluster: loop device: %w", err)
	}
	info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err == nil {
		return device, fileID{info.Device, info.Inode}, nil
	}
	_ = device.Close()
	if errors.Is(err, unix.ENXIO) {
		return nil, fileID{}, nil // free meanwhile
	}
	return nil, fileID{}, fmt.Errorf("cluster: %s: ask for its file: %w", l.path, err)
}

// filesBelow has the regular files of a directory, seen from outside the nodes'
// namespaces, without mounts in it.
func filesBelow(dir string) (map[fileID]bool, error) {
	files := make(map[fileID]bool)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a running node removes its own mounts
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

// detach detaches the device if it still has its backing file. It keeps the device open,
// so that the device cannot change between the check and the detachment.
func (l loop) detach() error {
	device, file, err := l.open()
	if device == nil || err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	if file != l.file {
		return nil
	}
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("cluster: detach %s: %w", l.path, err)
	}
	// It is detached with the last close, which is this one.
	if err := device.Close(); err != nil {
		return err
	}
	return l.awaitFree()
}

// awaitFree waits until the kernel no longer uses the file.
func (l loop) awaitFree() error {
	return poll(2*time.Minute, l.path+" to be free: who has it open?", func() (bool, error) {
		device, file, err := l.open()
		if device == nil {
			return true, err
		}
		return file != l.file, device.Close()
	})
}
