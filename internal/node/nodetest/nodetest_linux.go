// Package nodetest helps the tests that work on real loop devices and mounts: it
// makes files and devices, and fails a test that leaves a device or a mount. It
// inspects only those below the test's own directory, since the machine's other loop
// devices and mounts do not belong to the test.
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

// RequireRoot fails a test that does not run as root.
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

// removeLeaks removes the mounts and loop devices that a failed test left below dir.
func removeLeaks(t testing.TB, dir string) {
	t.Helper()
	UnmountBelow(t, dir)
	DetachLoopsBelow(t, dir)
}

// UnmountBelow unmounts everything at or below dir, the last mount first. A mount
// that disappeared after it was listed is not an error.
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

// detachLoop detaches a loop device that LoopsBelow listed for dir. Since then the
// kernel may have detached it and attached another file. So detachLoop opens the
// device, which keeps its file attached, and checks the file again.
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

// Kill kills a process if it is still the intended one: matches checks the process
// again while a handle prevents the reuse of its ID.
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

// NoLeaks fails the test if a mount is below dir or a loop device has its file there.
// It waits a second for them to disappear: udev may have a device open, for instance.
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

// backedBelow reports whether the loop device has a backing file below dir. A free
// device has no backing file.
func backedBelow(name, dir string) bool {
	file, err := os.ReadFile(filepath.Join("/sys/block", name, "loop/backing_file"))
	return err == nil && strings.HasPrefix(string(file), dir+"/")
}
