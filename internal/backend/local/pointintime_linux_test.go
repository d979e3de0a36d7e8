package local

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// mountDevice makes a filesystem on a volume and mounts it.
func mountDevice(t *testing.T, pool *Pool, id, fsType string) string {
	t.Helper()
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	mkfs(t, fsType, device.Path)
	return mountAt(t, device, fsType)
}

func mountAt(t *testing.T, device *backend.Device, fsType string) string {
	t.Helper()
	dir := filepath.Join(nodetest.Dir(t), "mounted")
	must(t, os.Mkdir(dir, 0o700))
	options := ""
	if fsType == fs.XFS {
		options = "nouuid"
	}
	must(t, unix.Mount(device.Path, dir, fsType, 0, options))
	t.Cleanup(func() { thawAndUnmount(t, dir) })
	must(t, device.Release())
	return dir
}

// What was written before the snapshot, without any sync, is in the snapshot.
func TestCreateSnapshot_ofAMountedVolumeHasItsWrites(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, poolType string) {
		for _, fsType := range []string{fs.Ext4, fs.XFS, fs.Btrfs} {
			t.Run(fsType, func(t *testing.T) {
				pool := open(t, Options{Pool: disk(t, poolType, 2*gibibyte)})
				volume := create(t, pool, spec("one", 320*mebibyte))
				dir := mountDevice(t, pool, volume.ID, fsType)
				want := bytes.Repeat([]byte("written "), 1<<16)
				must(t, os.WriteFile(filepath.Join(dir, "file"), want, 0o600))
				must(t, snapshotOf(t, pool, volume.ID))
				must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("later"), 0o600))

				restored := create(t, pool, backend.VolumeSpec{
					Name: "two", Size: 320 * mebibyte, Source: backend.Source{SnapshotID: idOf(snapshotPrefix, "s")},
				})
				device := openDevice(t, pool, backend.DeviceRequest{VolumeID: restored.ID})
				got, err := os.ReadFile(filepath.Join(mountAt(t, device, fsType), "file"))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("the snapshot has %d bytes, %v; want the %d written before", len(got), err, len(want))
				}
			})
		}
	})
}

func TestCreateSnapshot_withoutReflinkRefusesARawDeviceInUse(t *testing.T) {
	dir := disk(t, "ext4", gibibyte)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true})
	if err := snapshotOf(t, pool, volume.ID); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("in use: %v; want ErrPrecondition", err)
	}
	must(t, device.Release())
	must(t, pool.CloseDevice(t.Context(), volume.ID))
	must(t, snapshotOf(t, pool, volume.ID))
	wantEntries(t, dir, map[string]int{snapshotsDir: 1, trashDir: 0})
}

func TestCreateSnapshot_ofARawDeviceInUseHasItsCachedWrites(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true})
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt([]byte("cached"), 0) // no sync
	must(t, err)
	must(t, snapshotOf(t, pool, volume.ID))
	must(t, file.Close())
	must(t, device.Release())
	must(t, pool.CloseDevice(t.Context(), volume.ID))
	create(t, pool, backend.VolumeSpec{Name: "two", Size: 8 * mebibyte, Source: backend.Source{SnapshotID: idOf(snapshotPrefix, "s")}})
	if got := readVolume(t, pool, idOf(volumePrefix, "two"), 0, 6); string(got) != "cached" {
		t.Fatalf("got %q", got)
	}
}

// The copy of a mounted volume keeps it frozen, so that it must not take long.
func TestCreateSnapshot_givesUpWhenTheFreezeTakesTooLong(t *testing.T) {
	dir := disk(t, "ext4", gibibyte)
	pool := open(t, Options{Pool: dir, FreezeLimit: time.Microsecond})
	volume := create(t, pool, spec("one", 64*mebibyte))
	mounted := mountDevice(t, pool, volume.ID, fs.Ext4)
	err := snapshotOf(t, pool, volume.ID)
	if !errors.Is(err, backend.ErrPrecondition) && !errors.Is(err, backend.ErrUnavailable) {
		t.Fatalf("got %v; want ErrPrecondition or ErrUnavailable", err)
	}
	must(t, os.WriteFile(filepath.Join(mounted, "file"), []byte("thawed"), 0o600))
	wantEntries(t, dir, map[string]int{snapshotsDir: 0, trashDir: 0})
}

func TestCreateSnapshot_leavesAFilesystemFrozenThatAnotherProcessFroze(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	volume := create(t, pool, spec("one", 64*mebibyte))
	root, err := os.Open(mountDevice(t, pool, volume.ID, fs.Ext4))
	must(t, err)
	defer func() { _ = root.Close() }()
	must(t, fs.Freeze(root))
	defer func() { _ = fs.Thaw(root) }()
	must(t, snapshotOf(t, pool, volume.ID))
	if err := fs.Freeze(root); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("got %v; it was thawed", err)
	}
}

// interrupted is a context that ends after a number of checks.
type interrupted struct {
	context.Context
	checks int
}

func (c *interrupted) Err() error {
	if c.checks--; c.checks < 0 {
		return context.Canceled
	}
	return nil
}

func TestCreateVolume_continuesAnInterruptedCopy(t *testing.T) {
	dir := disk(t, "ext4", gibibyte)
	pool := open(t, Options{Pool: dir})
	pool.saveEvery = copyChunk
	volume := create(t, pool, spec("one", 64*mebibyte))
	content := bytes.Repeat([]byte("content "), 8*mebibyte)
	writeVolume(t, pool, volume.ID, 0, content)
	clone := backend.VolumeSpec{Name: "two", Size: 64 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}

	if _, err := pool.CreateVolume(&interrupted{t.Context(), 5}, clone); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation", err)
	}
	shut(t, pool)
	pool = open(t, Options{Pool: dir})
	record, err := readRecord[volumeRecord](pool.root, volumePath(idOf(volumePrefix, "two")), volumeFile)
	if err != nil || record.Copy == nil || record.Copy.Offset < copyChunk {
		t.Fatalf("after the restart: %+v, %v; want a copy that can continue", record, err)
	}
	if listed, err := pool.Volumes(t.Context(), "", 0); err != nil || len(listed) != 1 {
		t.Errorf("listed %+v, %v; a half-made volume must not be listed", listed, err)
	}
	corrupt(t, pool, record.ID) // after the restart this part is not copied again
	create(t, pool, clone)
	got := readVolume(t, pool, record.ID, 0, len(content))
	if !bytes.HasPrefix(got, []byte("corrupt ")) || !bytes.Equal(got[8:], content[8:]) {
		t.Fatalf("begins with %q: it was copied from the beginning", got[:16])
	}
}

// corrupt changes the part of a half-made copy that is done.
func corrupt(t *testing.T, pool *Pool, id string) {
	t.Helper()
	data, err := pool.openData(volumePath(id), os.O_RDWR)
	must(t, err)
	_, err = data.WriteAt([]byte("corrupt "), 0)
	must(t, errors.Join(err, data.Close()))
}

func TestCreateVolume_restartsWhenTheSourceChanged(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "ext4", gibibyte)})
	pool.saveEvery = copyChunk
	volume := create(t, pool, spec("one", 64*mebibyte))
	content := bytes.Repeat([]byte("content "), 8*mebibyte)
	writeVolume(t, pool, volume.ID, 0, content)
	clone := backend.VolumeSpec{Name: "two", Size: 64 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}
	if _, err := pool.CreateVolume(&interrupted{t.Context(), 5}, clone); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation", err)
	}
	copy(content, "changed ")
	writeVolume(t, pool, volume.ID, 0, content[:4096])
	create(t, pool, clone)
	if got := readVolume(t, pool, idOf(volumePrefix, "two"), 0, len(content)); !bytes.Equal(got, content) {
		t.Fatalf("begins with %q: a mixture of before and after", got[:8])
	}
}

func TestCreateVolume_removesAHalfMadeCopyThatIsNotRequestedAgain(t *testing.T) {
	dir := disk(t, "ext4", gibibyte)
	pool := open(t, Options{Pool: dir})
	pool.saveEvery = copyChunk
	volume := create(t, pool, spec("one", 64*mebibyte))
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, 64*mebibyte))
	clone := backend.VolumeSpec{Name: "two", Size: 64 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}
	for name, check := range map[string]func(){
		"at the next start":   func() { shut(t, pool); pool = open(t, Options{Pool: dir}) },
		"by the housekeeping": func() { must(t, pool.tidy(t.Context())) },
	} {
		pool.saveEvery = copyChunk
		_, _ = pool.CreateVolume(&interrupted{t.Context(), 5}, clone)
		check()
		wantEntries(t, dir, map[string]int{volumesDir: 2, trashDir: 0})
		entry := filepath.Join(dir, volumesDir, idOf(volumePrefix, "two"))
		old := time.Now().Add(-keepPartial - time.Hour)
		must(t, os.Chtimes(entry, old, old))
		check()
		t.Log(name)
		wantEntries(t, dir, map[string]int{volumesDir: 1, trashDir: 0})
	}
}

func TestFormatMark_ofAnInterruptedGrowth(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	interrupted := backend.FormatMark{FSType: "ext4", Done: true, Resizing: true}
	must(t, pool.SetFormatMark(t.Context(), volume.ID, interrupted))
	if mark, err := pool.FormatMark(t.Context(), volume.ID); err != nil || mark != interrupted {
		t.Fatalf("%+v, %v", mark, err)
	}
	clone := backend.VolumeSpec{Name: "two", Size: 8 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}
	if _, err := pool.CreateVolume(t.Context(), clone); !errors.Is(err, backend.ErrBusy) {
		t.Errorf("a clone: %v; want ErrBusy", err)
	}
	if _, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "three", SourceID: volume.ID}); !errors.Is(err, backend.ErrBusy) {
		t.Errorf("a snapshot: %v; want ErrBusy", err)
	}

	t.Log("another boot's mark is void")
	record := markRecord{Version: recordVersion, FSType: "ext4", Done: true, Resizing: "another boot"}
	must(t, pool.writeRecord(volumePath(volume.ID), formatFile, record))
	interrupted.Resizing = false
	if mark, err := pool.FormatMark(t.Context(), volume.ID); err != nil || mark != interrupted {
		t.Errorf("%+v, %v", mark, err)
	}
	create(t, pool, clone)
}

func TestCreateVolume_mayBeLargerThanItsSource(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		pool := open(t, Options{Pool: disk(t, fsType, gibibyte)})
		volume := create(t, pool, spec("one", 8*mebibyte))
		writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{5}, 8*mebibyte))
		must(t, pool.SetFormatMark(t.Context(), volume.ID, backend.FormatMark{FSType: "ext4", Done: true}))
		larger := create(t, pool, backend.VolumeSpec{Name: "two", Size: 12 * mebibyte, Source: backend.Source{VolumeID: volume.ID}})
		want := append(bytes.Repeat([]byte{5}, 8*mebibyte), make([]byte, 4*mebibyte)...)
		if got := readVolume(t, pool, larger.ID, 0, len(want)); !bytes.Equal(got, want) {
			t.Error("the content differs")
		}
		// A blank clone lost its content: the mark shows it.
		if mark, err := pool.FormatMark(t.Context(), larger.ID); err != nil || !mark.Done || mark.FSType != "ext4" {
			t.Errorf("the clone's format mark is %+v, %v", mark, err)
		}
		if _, err := pool.CreateVolume(t.Context(), backend.VolumeSpec{Name: "three", Size: 4 * mebibyte, Source: backend.Source{VolumeID: volume.ID}}); !errors.Is(err, backend.ErrOutOfRange) {
			t.Errorf("smaller: %v; want ErrOutOfRange", err)
		}
		other := backend.VolumeSpec{Name: "four", Size: 8 * mebibyte, Source: backend.Source{VolumeID: volume.ID}, Parameters: map[string]string{parameterSectorSize: "512"}}
		if _, err := pool.CreateVolume(t.Context(), other); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("with other sectors: %v; want ErrInvalid", err)
		}
	})
}

func TestOpenDevice_keepsADeviceThatAMountHadFirst(t *testing.T) {
	pool := open(t, Options{Pool: poolDir(t)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	transient := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID})
	kept := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true})
	if transient.Path != kept.Path {
		t.Errorf("devices %s and %s of one volume", transient.Path, kept.Path)
	}
	must(t, errors.Join(transient.Release(), kept.Release()))
	if devices, err := pool.Devices(t.Context(), volume.ID); err != nil || len(devices) != 1 {
		t.Errorf("devices %+v, %v; want the one that was to be kept", devices, err)
	}
	must(t, pool.CloseDevice(t.Context(), volume.ID))
}

// Housekeeping and the other half lock entries for an instant.
func TestPool_waitsForAShortLock(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	snapshot, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "two", SourceID: volume.ID})
	must(t, err)
	group, err := pool.CreateGroup(t.Context(), backend.GroupSnapshotSpec{Name: "three", SourceIDs: []string{volume.ID}})
	must(t, err)
	begun := volumePath(idOf(volumePrefix, "begun"))
	must(t, durable.Mkdir(pool.root, begun, directoryMode))
	for entry, call := range map[string]func() error{
		volumePath(volume.ID): func() error {
			_, err := pool.Expand(t.Context(), volume, 16*mebibyte)
			return err
		},
		snapshotPath(snapshot.ID):           func() error { return pool.DeleteSnapshot(t.Context(), snapshot.ID) },
		snapshotPath(group.Snapshots[0].ID): func() error { return pool.DeleteGroup(t.Context(), group.ID) },
		begun: func() error {
			_, err := pool.CreateVolume(t.Context(), spec("begun", 8*mebibyte))
			return err
		},
	} {
		lock, err := pool.tryLock(entry, unix.LOCK_SH)
		must(t, err)
		time.AfterFunc(50*time.Millisecond, lock.release)
		if err := call(); err != nil {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// A creation that is cancelled while it waits for the lock of its entry has done
// nothing: its outcome is known, and its reservation ends.
func TestPool_aCancelledWaitForALockLeavesNothingUnresolved(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", gibibyte)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	for entry, call := range map[string]func(context.Context) error{
		volumePath(idOf(volumePrefix, "two")): func(ctx context.Context) error {
			_, err := pool.CreateVolume(ctx, spec("two", 8*mebibyte))
			return err
		},
		snapshotPath(idOf(snapshotPrefix, "three")): func(ctx context.Context) error {
			_, err := pool.CreateSnapshot(ctx, backend.SnapshotSpec{Name: "three", SourceID: volume.ID})
			return err
		},
		groupPath(idOf(groupPrefix, "four")): func(ctx context.Context) error {
			_, err := pool.CreateGroup(ctx, backend.GroupSnapshotSpec{Name: "four", SourceIDs: []string{volume.ID}})
			return err
		},
	} {
		must(t, durable.Mkdir(pool.root, entry, directoryMode))
		lock, err := pool.tryLock(entry, unix.LOCK_EX)
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", entry, err)
		}
		if unresolved := pool.unresolved.all(); len(unresolved) > 0 {
			t.Errorf("%s: unresolved are %v", entry, unresolved)
		}
		lock.release()
		if err := call(t.Context()); err != nil {
			t.Errorf("%s: the repeated call: %v", entry, err)
		}
	}
}
