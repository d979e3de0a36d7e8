package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

func TestDeleteGroup_onAFullPool(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 300*mebibyte)
		pool := open(t, Options{Pool: dir})
		g := guard.New(pool)
		var ids []string
		for _, name := range []string{"one", "two"} {
			ids = append(ids, create(t, pool, spec(name, 16*mebibyte)).ID)
		}
		group, err := g.CreateGroup(t.Context(), backend.GroupSnapshotSpec{Name: "night", SourceIDs: ids})
		must(t, err)
		fillDisk(t, dir, 0)
		must(t, g.DeleteGroup(t.Context(), group.ID, nil))
		wantEntries(t, dir, map[string]int{groupsDir: 0, snapshotsDir: 0, trashDir: 0})
	})
}

// A deletion succeeds only when it is durable, also when it is repeated.
func TestDelete_succeedsOnlyWhenItIsDurable(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	pool.stopHousekeeping() // which would sync by itself
	g := guard.New(pool)
	volume := create(t, pool, spec("one", 8*mebibyte))
	must(t, snapshotOf(t, pool, volume.ID))
	group, err := g.CreateGroup(t.Context(), backend.GroupSnapshotSpec{Name: "night", SourceIDs: []string{volume.ID}})
	must(t, err)
	deletions := map[string]func() error{
		"snapshot": func() error { return g.DeleteSnapshot(t.Context(), idOf(snapshotPrefix, "s")) },
		"group":    func() error { return g.DeleteGroup(t.Context(), group.ID, nil) },
		"volume":   func() error { return g.DeleteVolume(t.Context(), volume.ID) },
	}
	noSync := func(c syscallfault.Call) unix.Errno {
		if c.Name == "fsync" {
			return unix.EIO
		}
		return 0
	}
	for _, what := range []string{"snapshot", "group", "volume"} {
		for try := range 3 {
			var failure error
			_, err := syscallfault.Run([]string{dir}, noSync, func() { failure = deletions[what]() })
			must(t, err)
			if failure == nil {
				t.Fatalf("call %d for the %s succeeded, and no fsync did", try+1, what)
			}
		}
		must(t, deletions[what]())
		wantAgreement(t.Context(), t, pool, "the deletion of the "+what)
	}
}

func TestTrash_thatCannotBeRemovedIsReportedAndRetried(t *testing.T) {
	dir := disk(t, "ext4", 400*mebibyte)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, thickSpec("one", 8*mebibyte))
	path := filepath.Join(dir, volumesDir, volume.ID, dataFile)
	file, err := os.Open(path)
	must(t, err)
	immutable := func(flags int) {
		t.Helper()
		must(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags))
	}
	before, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	must(t, err)
	immutable(before | 0x10) // FS_IMMUTABLE_FL
	t.Cleanup(func() {
		immutable(before)
		must(t, file.Close())
	})
	must(t, pool.DeleteVolume(t.Context(), volume.ID))
	problems, err := pool.StorageHealth(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Reason != "DeletedNotRemoved" {
		t.Fatalf("health %+v, %v; want DeletedNotRemoved", problems, err)
	}
	immutable(before)
	must(t, pool.tidy(t.Context()))
	wantEntries(t, dir, map[string]int{volumesDir: 0, trashDir: 0})
	if problems, err := pool.StorageHealth(t.Context()); err != nil || len(problems) != 0 {
		t.Errorf("health %+v, %v; want nothing", problems, err)
	}
}

// An entry of the trash that cannot be removed is reported also if its data file is gone.
func TestTrash_withoutADataFileIsReported(t *testing.T) {
	dir := disk(t, "ext4", 400*mebibyte)
	pool := open(t, Options{Pool: dir})
	entry := filepath.Join(dir, trashDir, idOf(volumePrefix, "one"))
	must(t, os.Mkdir(entry, 0o700))
	must(t, os.WriteFile(filepath.Join(entry, "kept"), nil, 0o600))
	file, err := os.Open(entry)
	must(t, err)
	before, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	must(t, err)
	must(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, before|0x10)) // FS_IMMUTABLE_FL
	t.Cleanup(func() { must(t, file.Close()) })
	if err := pool.tidy(t.Context()); err == nil {
		t.Fatal("the entry was removed")
	}
	problems, err := pool.StorageHealth(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Reason != "DeletedNotRemoved" || !strings.Contains(problems[0].Message, "1 deleted entries") {
		t.Errorf("health %+v, %v; want DeletedNotRemoved", problems, err)
	}
	must(t, unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, before))
	must(t, pool.tidy(t.Context()))
	if problems, err := pool.StorageHealth(t.Context()); err != nil || len(problems) != 0 {
		t.Errorf("health %+v, %v; want nothing", problems, err)
	}
}

// A copy whose call was cancelled occupies blocks: health reports it, its deletion
// removes it, and so does the need for room.
func TestCancelledCopy_givesItsRoomBack(t *testing.T) {
	const size = 120 * mebibyte
	dir := small(t, "ext4", 400*mebibyte)
	pool := open(t, Options{Pool: dir})
	pool.saveEvery = copyChunk
	g := guard.New(pool)
	volume := create(t, pool, thickSpec("one", size))
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, size))
	cancel := func(name string) {
		t.Helper()
		clone := backend.VolumeSpec{Name: name, Size: size, Source: backend.Source{VolumeID: volume.ID}}
		if _, err := pool.CreateVolume(&interrupted{t.Context(), 12}, clone); err == nil {
			t.Fatal("the copy was not cancelled")
		}
	}
	cancel("two")
	problems, err := pool.StorageHealth(t.Context())
	if err != nil || len(problems) != 1 || problems[0].Reason != "CopiesUnfinished" {
		t.Fatalf("health %+v, %v; want CopiesUnfinished", problems, err)
	}
	must(t, g.DeleteVolume(t.Context(), idOf(volumePrefix, "two")))
	wantEntries(t, dir, map[string]int{volumesDir: 1, trashDir: 0})
	cancel("three")
	create(t, pool, thickSpec("four", 200*mebibyte))
	wantEntries(t, dir, map[string]int{volumesDir: 2, trashDir: 0})
	wantAgreement(t.Context(), t, pool, "after the copy made room")
}

// A filesystem that could not be thawed is thawed later: by this process without
// being asked, or by the next one.
func TestCreateSnapshot_whoseThawFailsThawsLater(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s restart %t", fsType, restart), func(t *testing.T) {
				dir := disk(t, fsType, gibibyte)
				pool := open(t, Options{Pool: dir})
				volume := create(t, pool, spec("one", 64*mebibyte))
				mounted := mountDevice(t, pool, volume.ID, "ext4")
				if restart {
					pool.stopHousekeeping()
				}
				var failure error
				_, err := syscallfault.Run([]string{mounted}, failThaw, func() { failure = snapshotOf(t, pool, volume.ID) })
				must(t, err)
				if !errors.Is(failure, backend.ErrUnavailable) {
					t.Fatalf("got %v; want ErrUnavailable", failure)
				}
				if restart {
					shut(t, pool)
					pool = open(t, Options{Pool: dir})
				}
				(&world{TB: t, mounted: mounted}).wantThawed()
				must(t, snapshotOf(t, pool, volume.ID))
				wantAgreement(t.Context(), t, pool, "after the thaw")
			})
		}
	}
}
