// Package nodetest helps the tests that work on real loop devices and mounts:
// it makes files and devices, and proves that a test left neither a device nor
// a mount behind. It reads only what lies below the test's own directory,
// since other loop devices and mounts of the machine are none of its business.
package nodetest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// RequireRoot fails a test that the kernel would refuse.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run make test")
	}
}

// Dir is a temporary directory without symlinks in its path, checked for
// leaks before it is removed.
func Dir(t testing.TB) string {
	t.Helper()
	RequireRoot(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		NoLeaks(t, dir)
		removeLeaks(t, dir)
	})
	return dir
}

// removeLeaks frees the machine of what a failed test left below its directory.
func removeLeaks(t testing.TB, dir string) {
	t.Helper()
	UnmountBelow(t, dir)
	DetachLoopsBelow(t, dir)
}

// UnmountBelow detaches the mounts at or below dir, the last one first. A mount
// that went away after it was listed is done.
func UnmountBelow(t testing.TB, dir string) {
	t.Helper()
	for _, point := range slices.Backward(MountsBelow(t, dir)) {
		err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			t.Errorf("unmount %s: %v", point, err)
		}
	}
}

// DetachLoopsBelow frees the loop devices whose backing files lie below dir.
func DetachLoopsBelow(t testing.TB, dir string) {
	t.Helper()
	for _, name := range LoopsBelow(t, dir) {
		detachLoop(t, dir, name)
	}
}

// detachLoop frees a loop device that LoopsBelow listed for dir. Since then it
// may have detached itself, or belong to another file: the device is opened,
// which keeps it with its file, and asked again.
func detachLoop(t testing.TB, dir, name string) {
	t.Helper()
	device, err := os.Open(filepath.Join("/dev", name))
	if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Errorf("detach %s: %v", name, err)
		return
	}
	defer func() { _ = device.Close() }()
	if !backedBelow(name, dir) {
		return
	}
	if _, err := unix.IoctlRetInt(int(device.Fd()), unix.LOOP_CLR_FD); err != nil && !errors.Is(err, unix.ENXIO) {
		t.Errorf("detach %s: %v", name, err)
	}
}

// Kill ends the process if it is still the one that was meant: matches reads
// the process once more while a handle keeps its number from being used again.
func Kill(t testing.TB, pid int, matches func(pid int) bool) {
	t.Helper()
	process, err := os.FindProcess(pid)
	if errors.Is(err, os.ErrProcessDone) {
		return
	}
	if err != nil {
		t.Errorf("kill %d: %v", pid, err)
		return
	}
	defer func() { _ = process.Release() }()
	if !matches(pid) {
		return
	}
	if err := process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("kill %d: %v", pid, err)
	}
}

// File makes a sparse file of size bytes below dir and opens it.
func File(t testing.TB, dir, name string, size int64) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	return file
}

// NoLeaks fails the test when a mount lies below dir or a loop device has its
// file there. What goes away by itself within a second is not a leak: a device
// that udev has open, for instance.
func NoLeaks(t testing.TB, dir string) {
	t.Helper()
	var left []string
	for range 100 {
		if left = append(MountsBelow(t, dir), LoopsBelow(t, dir)...); len(left) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("left behind: %s", strings.Join(left, ", "))
}

// MountsBelow lists the mount points at or below dir.
func MountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	var points []string
	for _, m := range mounts {
		points = append(points, m.Mountpoint)
	}
	return points
}

// LoopsBelow lists the loop devices whose backing file lies below dir.
func LoopsBelow(t testing.TB, dir string) []string {
	t.Helper()
	devices, err := filepath.Glob("/sys/block/loop*")
	if err != nil {
		t.Fatal(err)
	}
	var loops []string
	for _, device := range devices {
		if name := filepath.Base(device); backedBelow(name, dir) {
			loops = append(loops, name)
		}
	}
	return loops
}

// backedBelow reports whether the loop device has a file, and that below dir. A
// device that is free, or becomes so meanwhile, has none.
func backedBelow(name, dir string) bool {
	file, err := os.ReadFile(filepath.Join("/sys/block", name, "loop/backing_file"))
	return err == nil && strings.HasPrefix(string(file), dir+"/")
}
