package blockdev

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const mebibyte = 1 << 20

func attach(t *testing.T, c LoopConfig) *Loop {
	t.Helper()
	loop, err := AttachLoop(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = loop.Close()
		if err := loop.Detach(); err != nil {
			t.Error(err)
		}
	})
	return loop
}

func TestAttachLoop_readsBackTheKernelsSettings(t *testing.T) {
	dir := nodetest.Dir(t)
	for name, c := range map[string]LoopConfig{
		"plain":    {},
		"direct":   {DirectIO: true, AutoClear: true},
		"sectors":  {SectorSize: 4096},
		"discard":  {Discard: true},
		"readonly": {ReadOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.File = nodetest.File(t, dir, name, 8*mebibyte)
			c.Path = c.File.Name()
			loop := attach(t, c)
			if loop.Size != 8*mebibyte || loop.BackingFile != c.Path {
				t.Errorf("%d bytes of %q", loop.Size, loop.BackingFile)
			}
			if loop.ReadOnly != c.ReadOnly || loop.AutoClear != c.AutoClear || loop.Discard != c.Discard || loop.DirectIO != c.DirectIO {
				t.Errorf("asked for %+v, got %+v", c, *loop)
			}
			if c.SectorSize != 0 && loop.SectorSize != c.SectorSize {
				t.Errorf("sectors of %d bytes", loop.SectorSize)
			}
			var stat unix.Stat_t
			if err := unix.Stat(loop.Path, &stat); err != nil || stat.Rdev != loop.Number {
				t.Errorf("%s is device %x, %v; reported %x", loop.Path, stat.Rdev, err, loop.Number)
			}
		})
	}
}

func TestAttachLoop_manyAtOnce(t *testing.T) {
	dir := nodetest.Dir(t)
	var group sync.WaitGroup
	for i := range 40 {
		file := nodetest.File(t, dir, string(rune('A'+i)), mebibyte)
		group.Go(func() {
			loop, err := AttachLoop(t.Context(), LoopConfig{File: file, Path: file.Name(), AutoClear: true})
			if err != nil {
				t.Error(err)
				return
			}
			if err := loop.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestLoopsOf_findsThisFileOnly(t *testing.T) {
	dir := nodetest.Dir(t)
	for _, sub := range []string{"a/x", "b/x"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// Same name in a directory of the same name: only the inode differs.
	file := nodetest.File(t, dir, "a/x/data", mebibyte)
	other := nodetest.File(t, dir, "b/x/data", mebibyte)
	first := attach(t, LoopConfig{File: file, Path: file.Name()})
	second := attach(t, LoopConfig{File: file, Path: file.Name(), ReadOnly: true})
	attach(t, LoopConfig{File: other, Path: other.Name()})

	found, err := LoopsOf(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]bool{}
	for _, loop := range found {
		got[loop.Index] = true
	}
	if len(found) != 2 || !got[first.Index] || !got[second.Index] {
		t.Fatalf("found %v; want loops %d and %d", got, first.Index, second.Index)
	}
}

// A container opens the file through a mount that is gone when it has ended, and the
// kernel then omits the directories above that mount.
func TestLoopsOf_findsAFileThatWasOpenedThroughAMountThatIsGone(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "pool.img", mebibyte)
	seen := t.TempDir()
	if err := unix.Mount(dir, seen, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	inside, err := os.OpenFile(filepath.Join(seen, "pool.img"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	loop := attach(t, LoopConfig{File: inside, Path: inside.Name()})
	if err := errors.Join(inside.Close(), unix.Unmount(seen, unix.MNT_DETACH)); err != nil {
		t.Fatal(err)
	}
	found, err := LoopsOf(file)
	if err != nil || len(found) != 1 || found[0].Index != loop.Index {
		t.Errorf("found %v, error %v; want loop %d", found, err, loop.Index)
	}
}

func TestLoopsOf_findsARenamedAndAnUnlinkedFile(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	attach(t, LoopConfig{File: file, Path: file.Name()})
	if err := os.Rename(file.Name(), filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	if found, err := LoopsOf(file); err != nil || len(found) != 1 {
		t.Fatalf("renamed: %v, %v", found, err)
	}
	if err := os.Remove(filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	if found, err := LoopsOf(file); err != nil || len(found) != 1 {
		t.Fatalf("unlinked: %v, %v", found, err)
	}
}

func TestOpen_refusesADeviceThatGotAnotherFile(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	listed, err := LoopsOf(file)
	if err != nil || len(listed) != 1 {
		t.Fatal(listed, err)
	}
	if err := listed[0].Open(); err != nil {
		t.Fatalf("a device that is there: %v", err)
	}
	if err := listed[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := loop.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := listed[0].Open(); !errors.Is(err, backend.ErrNotFound) {
		t.Fatalf("a detached device: %v", err)
	}
}

func TestSetCapacity_followsTheFile(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", 8*mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	if err := file.Truncate(16 * mebibyte); err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{true, false} {
		if size, err := loop.SetCapacity(); err != nil || size != 16*mebibyte {
			t.Fatalf("open = %t: %d bytes, %v", open, size, err)
		}
		if err := loop.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSetDiscard_offIsRefusedByTheDevice(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", 8*mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name(), Discard: true})
	if err := discard(loop.Path, mebibyte); err != nil {
		t.Fatalf("a device with discard: %v", err)
	}
	if err := loop.SetDiscard(false); err != nil || loop.Discard {
		t.Fatal(err)
	}
	if err := discard(loop.Path, mebibyte); !errors.Is(err, unix.EOPNOTSUPP) {
		t.Fatalf("a device without discard: %v", err)
	}
	if err := loop.SetDiscard(true); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatalf("turned on again: %v", err)
	}
}

// The kernel keeps the limit with the device number: the user that gets the number
// next must not inherit it.
func TestAttachLoop_discardsAfterAnotherTurnedThemOff(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", 8*mebibyte)
	for range 5 {
		for _, autoClear := range []bool{false, true} {
			off := attach(t, LoopConfig{File: file, Path: file.Name(), AutoClear: autoClear})
			if err := errors.Join(off.Close(), off.Detach()); err != nil || off.Discard {
				t.Fatal(off.Discard, err)
			}
			on := attach(t, LoopConfig{File: file, Path: file.Name(), Discard: true})
			if !on.Discard {
				t.Fatalf("%s does not discard", on.Path)
			}
			if err := errors.Join(on.Close(), on.Detach()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func discard(path string, length uint64) error {
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer closeQuietly(device)
	span := [2]uint64{0, length}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return errno
	}
	return nil
}

func TestDetach_refusesWhileOpen(t *testing.T) {
	dir := nodetest.Dir(t)
	for name, flags := range map[string]int{"opened": os.O_RDONLY, "exclusive": os.O_RDONLY | unix.O_EXCL} {
		t.Run(name, func(t *testing.T) {
			file := nodetest.File(t, dir, name, mebibyte)
			loop := attach(t, LoopConfig{File: file, Path: file.Name()})
			if err := loop.Close(); err != nil {
				t.Fatal(err)
			}
			user, err := os.OpenFile(loop.Path, flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := loop.Detach(); !errors.Is(err, backend.ErrInUse) {
				t.Errorf("open: %v", err)
			}
			if err := user.Close(); err != nil {
				t.Fatal(err)
			}
			found, err := LoopsOf(file)
			if err != nil || len(found) != 1 || found[0].AutoClear {
				t.Fatalf("a refused detach left %+v, %v", found, err)
			}
			if err := loop.Detach(); err != nil {
				t.Errorf("free: %v", err)
			}
			if err := loop.Detach(); err != nil {
				t.Errorf("a second time: %v", err)
			}
			if found, err := LoopsOf(file); err != nil || len(found) != 0 {
				t.Fatalf("still there: %v, %v", found, err)
			}
		})
	}
}

func TestDetach_findsItsDeviceAfterTheFileWasRenamed(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	if err := os.Rename(file.Name(), filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	if err := loop.Detach(); err != nil {
		t.Fatal(err)
	}
	if found, err := LoopsOf(file); err != nil || len(found) != 0 {
		t.Fatalf("still there: %v, %v", found, err)
	}
}

func TestDetach_leavesADeviceThatGotAnotherFile(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	other := nodetest.File(t, dir, "other", mebibyte)
	loop := attach(t, LoopConfig{File: other, Path: other.Name()})
	stale := *loop // listed before the number was reused
	stale.file, stale.BackingFile, stale.inode = nil, file.Name(), loop.inode+1
	if err := stale.Detach(); err != nil {
		t.Fatal(err)
	}
	if found, err := LoopsOf(other); err != nil || len(found) != 1 {
		t.Fatalf("the other file's device: %v, %v", found, err)
	}
}

func TestClose_frees_autoClear(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name(), AutoClear: true})
	if err := loop.Close(); err != nil {
		t.Fatal(err)
	}
	if found, err := LoopsOf(file); err != nil || len(found) != 0 {
		t.Fatalf("still there: %v, %v", found, err)
	}
}
