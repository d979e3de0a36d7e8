package local

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// scratchDir is in memory if it has room, since these tests mostly wait for fsync(2);
// their results do not depend on the medium.
func scratchDir(t testing.TB) string {
	t.Helper()
	const memory, enough = "/dev/shm", 2 << 30
	var stat unix.Statfs_t
	if err := unix.Statfs(memory, &stat); err != nil || int64(stat.Bavail)*stat.Bsize < enough {
		return nodetest.Dir(t)
	}
	nodetest.RequireRoot(t)
	dir, err := os.MkdirTemp(memory, "holdfast-") //nolint:usetesting // in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nodetest.NoLeaks(t, dir)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// disk is a real filesystem for a pool: a formatted file on a loop device, mounted.
func disk(t testing.TB, fsType string, size int64) string {
	t.Helper()
	dir := scratchDir(t)
	file := nodetest.File(t, dir, "disk", size)
	mkfs(t, fsType, file.Name())
	mounted := filepath.Join(dir, "mounted")
	if err := os.Mkdir(mounted, 0o700); err != nil {
		t.Fatal(err)
	}
	loop, err := blockdev.AttachLoop(t.Context(), blockdev.LoopConfig{File: file, Path: file.Name(), AutoClear: true, Discard: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(loop.Path, mounted, fsType, 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := loop.Close(); err != nil { // the mount keeps the device
		t.Fatal(err)
	}
	t.Cleanup(func() { unmount(t, mounted) })
	return mounted
}

func mkfs(t testing.TB, fsType, path string) {
	t.Helper()
	arguments := map[string][]string{
		"ext4": {"-q", "-F", path}, "xfs": {"-q", "-f", path}, "btrfs": {"-q", "-f", path},
	}
	result, err := command.NewSystem().Run(t.Context(), command.Command{Name: "mkfs." + fsType, Args: arguments[fsType]})
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("mkfs.%s: %v, %s", fsType, err, result.Stderr)
	}
}

// unmount waits for what keeps a mount for an instant: a loop device that the
// kernel has not released yet, a program between fork and exec, or the pool's
// own reading of a frozen filesystem.
func unmount(t interface {
	Helper()
	Errorf(format string, arguments ...any)
}, dir string) {
	t.Helper()
	var err error
	for range 6000 {
		if err = unix.Unmount(dir, 0); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("unmount %s: %v", dir, err)
}
