// Package nodetest helps the tests that work on real loop devices and mounts:
// it makes files and devices, and proves that a test left neither a device nor
// a mount behind. It looks only at what lies below the test's own directory,
// since other loop devices and mounts of the machine are none of its business.
package nodetest

import (
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
	for _, point := range slices.Backward(MountsBelow(t, dir)) {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			t.Errorf("unmount %s: %v", point, err)
		}
	}
	for _, name := range LoopsBelow(t, dir) {
		device, err := os.Open(filepath.Join("/dev", name))
		if err != nil {
			continue // went away with its mount
		}
		_, _ = unix.IoctlRetInt(int(device.Fd()), unix.LOOP_CLR_FD)
		_ = device.Close()
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
// file there. What goes away by itself within a second is no leak: a device
// that somebody is only looking at, for instance.
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
	attributes, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	var loops []string
	for _, attribute := range attributes {
		data, err := os.ReadFile(attribute)
		if err == nil && strings.HasPrefix(string(data), dir+"/") {
			loops = append(loops, strings.Split(attribute, "/")[3])
		}
	}
	return loops
}
