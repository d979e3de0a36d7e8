package fs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

const mebibyte = 1 << 20

var smallest = map[string]int64{Ext4: 32 * mebibyte, XFS: 300 * mebibyte, Btrfs: 128 * mebibyte}

// volume is a loop device with a filesystem, mounted at dir.
type volume struct {
	file   *os.File
	loop   *blockdev.Loop
	device backend.Device
	dir    *os.File
}

func newVolume(t *testing.T, fsType string, size int64) *volume {
	t.Helper()
	base := nodetest.Dir(t)
	v := &volume{file: nodetest.File(t, base, "data", size)}
	var err error
	v.loop, err = blockdev.AttachLoop(t.Context(), blockdev.LoopConfig{File: v.file, Path: v.file.Name(), AutoClear: true, Discard: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.loop.Close() })
	v.device = backend.Device{Path: v.loop.Path, Number: v.loop.Number, Size: v.loop.Size, Discard: true}
	if err := Make(t.Context(), command.NewSystem(), fsType, v.device, ""); err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(base, "mount")
	if err := os.Mkdir(point, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(v.loop.Path, point, fsType, 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(point, 0) })
	if v.dir, err = os.Open(point); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.dir.Close() })
	return v
}

func TestGrow_fillsALargerDeviceOnline(t *testing.T) {
	for fsType, size := range smallest {
		t.Run(fsType, func(t *testing.T) {
			v := newVolume(t, fsType, size)
			if got, err := Size(v.dir, fsType); err != nil || got != size {
				t.Fatalf("before: %d bytes, %v; want %d", got, err, size)
			}
			before := statsOf(t, v)
			if err := v.file.Truncate(2 * size); err != nil {
				t.Fatal(err)
			}
			if _, err := v.loop.SetCapacity(); err != nil {
				t.Fatal(err)
			}
			if !CanGrowMounted(fsType) {
				err := Grow(v.dir, fsType, 2*size)
				if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "CAP_SYS_RESOURCE") {
					t.Fatalf("without the capability: %v", err)
				}
				return
			}
			for range 2 {
				if err := Grow(v.dir, fsType, 2*size); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Size(v.dir, fsType); err != nil || got != 2*size {
				t.Errorf("after: %d bytes, %v; want %d", got, err, 2*size)
			}
			if after := statsOf(t, v); after.Bytes.Total <= before.Bytes.Total+size/2 {
				t.Errorf("statfs says %d before and %d after", before.Bytes.Total, after.Bytes.Total)
			}
		})
	}
}

func TestGrowOffline_fillsALargerDevice(t *testing.T) {
	v := newVolume(t, Ext4, 32*mebibyte)
	if err := errors.Join(v.dir.Close(), unix.Unmount(v.dir.Name(), 0)); err != nil {
		t.Fatal(err)
	}
	if err := v.file.Truncate(64 * mebibyte); err != nil {
		t.Fatal(err)
	}
	if _, err := v.loop.SetCapacity(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, step := range []func(context.Context, command.Runner, string, string) error{VerifyOffline, GrowOffline, RepairOffline} {
			if err := step(t.Context(), command.NewSystem(), Ext4, v.loop.Path); err != nil {
				t.Fatal(err)
			}
		}
	}
	content, err := blockdev.Probe(t.Context(), v.file, 64*mebibyte, nil)
	if err != nil || content.Size != 64*mebibyte || content.HasErrors {
		t.Fatalf("%+v, %v", content, err)
	}
}

func statsOf(t *testing.T, v *volume) Stats {
	t.Helper()
	stats, err := ReadStats(v.dir)
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

func TestGrow_leavesOddSizesAlone(t *testing.T) {
	for fsType, size := range smallest {
		t.Run(fsType, func(t *testing.T) {
			v := newVolume(t, fsType, size+3*512)
			for range 2 {
				err := Grow(v.dir, fsType, v.loop.Size)
				if err != nil && CanGrowMounted(fsType) {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestReadStats_countsWrites(t *testing.T) {
	for fsType, size := range smallest {
		t.Run(fsType, func(t *testing.T) {
			v := newVolume(t, fsType, size)
			before := statsOf(t, v)
			if err := os.WriteFile(filepath.Join(v.dir.Name(), "file"), make([]byte, 4*mebibyte), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := SyncFS(v.dir); err != nil {
				t.Fatal(err)
			}
			after := statsOf(t, v)
			if grown := after.Bytes.Used - before.Bytes.Used; grown < 4*mebibyte || grown > 6*mebibyte {
				t.Errorf("used grew by %d", grown)
			}
			if after.Bytes.Total > size || after.Bytes.Available > after.Bytes.Total {
				t.Errorf("%+v of %d", after.Bytes, size)
			}
			if fsType == Btrfs {
				if after.Inodes != nil {
					t.Errorf("inodes of a btrfs: %+v", after.Inodes)
				}
			} else if after.Inodes.Used != before.Inodes.Used+1 {
				t.Errorf("inodes %+v, then %+v", before.Inodes, after.Inodes)
			}
		})
	}
}

func TestFreeze_stopsWritesUntilThaw(t *testing.T) {
	for fsType, size := range smallest {
		t.Run(fsType, func(t *testing.T) {
			v := newVolume(t, fsType, size)
			if err := Thaw(v.dir); err != nil {
				t.Fatalf("thaw without a freeze: %v", err)
			}
			if err := Freeze(v.dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = Thaw(v.dir) })
			if err := Freeze(v.dir); !errors.Is(err, backend.ErrBusy) {
				t.Errorf("a second freeze: %v", err)
			}
			written := make(chan error, 1)
			go func() { written <- os.WriteFile(filepath.Join(v.dir.Name(), "file"), []byte("x"), 0o600) }()
			select {
			case err := <-written:
				t.Errorf("a write went through: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			if err := Thaw(v.dir); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Errorf("the write after the thaw: %v", err)
			}
		})
	}
}

func TestMake_namesTheToolsReason(t *testing.T) {
	base := nodetest.Dir(t)
	file := nodetest.File(t, base, "small", 64*mebibyte)
	err := Make(t.Context(), command.NewSystem(), XFS, backend.Device{Path: file.Name()}, "")
	if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "300MB") {
		t.Fatalf("error %v; want mkfs.xfs's", err)
	}
}

func TestMake_refusesOtherFilesystems(t *testing.T) {
	err := Make(t.Context(), command.NewSystem(), "ntfs", backend.Device{}, "")
	if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "btrfs") {
		t.Fatal(err)
	}
}

// answers is a Runner that runs nothing.
type answers struct {
	code int
	ran  []string
}

func (a *answers) Run(_ context.Context, c command.Command) (command.Result, error) {
	a.ran = append([]string{c.Name}, c.Args...)
	return command.Result{ExitCode: a.code, Stderr: []byte("UNEXPECTED INCONSISTENCY\n")}, nil
}

// A filesystem that fsck repaired is sound; one that it could not repair is not mounted.
func TestCheck_acceptsRepairsAndRefusesTheRest(t *testing.T) {
	for _, c := range []struct {
		fsType  string
		code    int
		repairs bool
		advice  string
	}{
		{Ext4, 0, true, ""}, {Ext4, 1, true, ""}, {Ext4, 4, false, "e2fsck -f /dev/x"}, {Ext4, 8, false, "e2fsck -f /dev/x"},
		{XFS, 0, true, ""}, {XFS, 1, false, "xfs_repair /dev/x"}, {XFS, 2, false, "xfs_repair /dev/x"},
		{Btrfs, 0, false, "btrfs check /dev/x"},
	} {
		err := Check(t.Context(), &answers{code: c.code}, c.fsType, "/dev/x")
		if c.repairs != (err == nil) {
			t.Errorf("%s with code %d: %v", c.fsType, c.code, err)
		}
		if err != nil && (!errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), c.advice)) {
			t.Errorf("%s with code %d: %v; want the advice %q", c.fsType, c.code, err, c.advice)
		}
	}
}

func TestCheck_missingToolIsThePreconditionThatFailed(t *testing.T) {
	t.Setenv("PATH", "/nonexistent")
	runner := renamed{command.NewSystem()}
	if err := Check(t.Context(), runner, Ext4, "/dev/x"); !errors.Is(err, backend.ErrPrecondition) {
		t.Fatal(err)
	}
}

// renamed asks for programs that do not exist.
type renamed struct{ command.Runner }

func (r renamed) Run(ctx context.Context, c command.Command) (command.Result, error) {
	c.Name += "-that-is-not-installed"
	return r.Runner.Run(ctx, c)
}

func TestMake_neverDiscards(t *testing.T) {
	never := map[string]string{Ext4: "nodiscard", XFS: "-K", Btrfs: "-K"}
	for fsType, want := range never {
		runner := &answers{}
		if err := Make(t.Context(), runner, fsType, backend.Device{Path: "/dev/x", Discard: true}, ""); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(runner.ran, func(a string) bool { return strings.Contains(a, want) }) {
			t.Errorf("%v lacks %s", runner.ran, want)
		}
	}
}
