package blockdev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// LoopsNamed lists the loop devices whose backing file has the path in sysfs. It
// works without the file and without its filesystem, for taking down devices
// whose file cannot be opened any more. A device whose file can still be asked
// for its device number is left out unless that is number.
func LoopsNamed(number uint64, path string) ([]Loop, error) {
	failed := func(err error) ([]Loop, error) { return nil, fmt.Errorf("list loop devices of %s: %w", path, err) }
	names, err := attachedLoops()
	if err != nil {
		return failed(err)
	}
	var found []Loop
	for _, device := range names {
		backing, err := backingFile(device)
		if err != nil {
			return failed(err)
		}
		if strings.TrimSuffix(backing, deletedSuffix) != path {
			continue
		}
		loop, err := candidate(device, backing)
		if err != nil {
			return failed(err)
		}
		if loop != nil && (loop.unconfirmed || loop.device == number) {
			found = append(found, *loop)
		}
	}
	return found, nil
}

// unconfirmed is the error of a device whose file cannot be identified.
func unconfirmed(loop *Loop) error {
	return fmt.Errorf("%w: %s has a file of that name on a filesystem that failed", backend.ErrUnavailable, loop.Path)
}

// deletedSuffix is what the kernel appends to the path of a file without a name.
const deletedSuffix = " (deleted)"

// attachedLoops names the loop devices that have a size, and so a file. The
// kernel lists them in proc_partitions(5) and leaves the free ones out, of which
// a machine may have hundreds, for one read instead of one per device.
func attachedLoops() ([]string, error) {
	data, err := os.ReadFile("/proc/partitions")
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 4 {
			continue
		}
		if _, isLoop := loopIndex(fields[3]); isLoop {
			names = append(names, fields[3])
		}
	}
	return names, nil
}

// mayBe reports whether a file that is called desired may be the one that the
// kernel gives as backing. It writes the path from where the mount began through
// which the file was opened, when that mount is gone since: for a container that ended,
// the directories above its volume are missing from it.
func mayBe(backing, desired string) bool {
	if filepath.Base(backing) != filepath.Base(desired) {
		return false
	}
	parent := filepath.Base(filepath.Dir(backing))
	return parent == filepath.Base(filepath.Dir(desired)) || parent == string(filepath.Separator)
}

// candidate reads one loop device; nil when it is none, or its backing file is
// named otherwise, or it is just going away.
func candidate(name, desired string) (*Loop, error) {
	index, isLoop := loopIndex(name)
	if !isLoop {
		return nil, nil
	}
	backing, err := backingFile(name)
	if err != nil || !mayBe(backing, desired) {
		return nil, err
	}
	device, err := openLoop(index, true)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	loop := &Loop{Index: index, Path: device.Name(), file: device}
	err = loop.read()
	closeErr := loop.Close()
	if errors.Is(err, unix.ENXIO) {
		return nil, nil
	}
	return loop, errors.Join(err, closeErr)
}

// loopIndex reads N of "loopN".
func loopIndex(name string) (index int, isLoop bool) {
	digits, isLoop := strings.CutPrefix(name, "loop")
	index, err := strconv.Atoi(digits)
	return index, isLoop && err == nil
}

// backingFile reads the path of a loop device's file, "" of a free device. It
// calls the kernel directly because each listing reads all loop devices of the
// machine, and os.File would bring each of them into the poller and out again.
// A device that is free, or just becoming so, has "". Any other failure is an
// error: a device that is overlooked would be attached a second time.
func backingFile(name string) (string, error) {
	path := sysBlock + "/" + name + "/loop/backing_file"
	fd, err := retried(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var text [unix.PathMax]byte
	n, err := retried(func() (int, error) { return unix.Read(fd, text[:]) })
	if errors.Is(err, unix.ENODEV) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return strings.TrimSuffix(string(text[:n]), "\n"), nil
}

// retried repeats a system call that a signal interrupted; Go's own preemption
// sends them.
func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// BackingFiles returns the paths of the files of all loop devices, as the kernel has
// them, without opening a device. One that goes away meanwhile is left out.
func BackingFiles() ([]string, error) {
	names, err := attachedLoops()
	if err != nil {
		return nil, err
	}
	files := make([]string, 0, len(names))
	for _, name := range names {
		file, err := backingFile(name)
		if err != nil {
			return files, err
		}
		if file != "" {
			files = append(files, file)
		}
	}
	return files, nil
}
