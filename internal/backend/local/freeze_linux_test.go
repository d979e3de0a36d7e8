package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
)

// isFrozen asks the kernel by freezing, and thaws its own freeze.
func isFrozen(t tester, dir string) bool {
	t.Helper()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatalf("open the mount: %v", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.Freeze(root)
	if errors.Is(err, backend.ErrBusy) {
		return true
	}
	if err = errors.Join(err, fs.Thaw(root)); err != nil {
		t.Fatalf("freeze and thaw: %v", err)
	}
	return false
}

func freezeMount(t tester, dir string) {
	t.Helper()
	root, err := os.Open(dir)
	if err == nil {
		err = errors.Join(fs.Freeze(root), root.Close())
	}
	if err != nil {
		t.Fatalf("freeze %s: %v", dir, err)
	}
}

// A start finds a snapshot that a crash interrupted, and a filesystem that is
// frozen. It thaws it only if the driver recorded that it freezes it.
func TestOpen_thawsOnlyTheDriversFreezes(t *testing.T) {
	boot, err := bootID()
	must(t, err)
	for name, c := range map[string]struct {
		record string // "" for none
		frozen bool   // before the start
		want   bool   // frozen behind it
	}{
		"an administrator froze it":            {"", true, true},
		"the driver froze it":                  {boot, true, false},
		"the crash came before the freeze":     {boot, false, false},
		"the record was only begun":            {boot[:10], true, true},
		"the driver froze it before a restart": {"00000000-0000-0000-0000-000000000000", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := disk(t, "xfs", 400*mebibyte)
			pool := open(t, Options{Pool: dir})
			volume := create(t, pool, spec("one", 64*mebibyte))
			mounted := mountDevice(t, pool, volume.ID, fs.Ext4)
			halfSnapshot(t, pool, volume)
			shut(t, pool)
			record := filepath.Join(dir, volumePath(volume.ID), freezeFile)
			if c.record != "" {
				must(t, os.WriteFile(record, []byte(c.record), fileMode))
			}
			if c.frozen {
				freezeMount(t, mounted)
				defer func() {
					root, err := os.Open(mounted)
					must(t, err)
					must(t, errors.Join(fs.Thaw(root), root.Close()))
				}()
			}
			open(t, Options{Pool: dir})
			if frozen := isFrozen(t, mounted); frozen != c.want {
				t.Errorf("behind the start: frozen %t; want %t", frozen, c.want)
			}
			if _, err := os.Stat(record); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the record of the freeze: %v; want none", err)
			}
		})
	}
}

// halfSnapshot makes the state after a crash during a snapshot of the volume.
func halfSnapshot(t *testing.T, pool *Pool, volume backend.Volume) {
	t.Helper()
	entry := snapshotPath(idOf(snapshotPrefix, "half"))
	must(t, pool.root.Mkdir(entry, directoryMode))
	must(t, pool.writeRecord(entry, snapshotFile, snapshotRecord{
		header: newHeader(filepath.Base(entry)), Name: "half", SourceID: volume.ID, Size: volume.Size, SectorSize: 512,
	}))
}

// A filesystem stays frozen when it is unmounted, and its next mount is frozen.
func TestOpen_thawsALaterMountOfAFrozenFilesystem(t *testing.T) {
	for name, c := range map[string]struct {
		hide, show func(device, dir string) error
	}{
		"covered": {
			func(_, dir string) error { return unix.Mount("cover", dir, "tmpfs", 0, "size=64k") },
			func(_, dir string) error { return unix.Unmount(dir, 0) },
		},
		"unmounted": {
			func(_, dir string) error { return unix.Unmount(dir, 0) },
			func(device, dir string) error { return unix.Mount(device, dir, fs.Ext4, 0, "") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := disk(t, "xfs", 400*mebibyte)
			pool := open(t, Options{Pool: dir})
			volume := create(t, pool, spec("one", 64*mebibyte))
			mounted := mountDevice(t, pool, volume.ID, fs.Ext4)
			devices, err := pool.Devices(t.Context(), volume.ID)
			must(t, err)
			halfSnapshot(t, pool, volume)
			must(t, pool.recordFreeze(volume.ID))
			freezeMount(t, mounted)
			shut(t, pool)
			must(t, c.hide(devices[0].Path, mounted))
			pool = open(t, Options{Pool: dir})
			must(t, c.show(devices[0].Path, mounted))
			must(t, pool.resolveAll(t.Context()))
			if isFrozen(t, mounted) {
				t.Error("the filesystem is frozen and has no record")
			}
			if froze, err := pool.froze(volume.ID); froze || err != nil {
				t.Errorf("the record of the freeze: %t, %v; want none", froze, err)
			}
		})
	}
}

// The filesystem is frozen by the driver, and stays its own to thaw.
func TestCreateSnapshot_ofAVolumeThatIsStillFrozenThawsIt(t *testing.T) {
	pool := open(t, Options{Pool: disk(t, "xfs", 400*mebibyte)})
	pool.stopHousekeeping()
	volume := create(t, pool, spec("one", 64*mebibyte))
	mounted := mountDevice(t, pool, volume.ID, fs.Ext4)
	var failure error
	_, err := syscallfault.Run([]string{mounted}, failThaw, func() { failure = snapshotOf(t, pool, volume.ID) })
	must(t, err)
	if !errors.Is(failure, errStillFrozen) || !isFrozen(t, mounted) {
		t.Fatalf("got %v; want that it is still frozen", failure)
	}
	_, err = pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "another", SourceID: volume.ID})
	must(t, err)
	if isFrozen(t, mounted) {
		t.Error("it is frozen behind the second snapshot")
	}
}

// failThaw is a kernel that thaws nothing.
func failThaw(c syscallfault.Call) unix.Errno {
	const thaw = 0xc0045878 // FITHAW
	if c.Request == thaw {
		return unix.EIO
	}
	return 0
}
