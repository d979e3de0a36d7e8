package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

// A filesystem that answers one question with an error, as one over a network may,
// hides no device: the volume is in use.
func TestDelete_keepsAVolumeWhoseDeviceCannotBeRead(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true})
	must(t, device.Release())
	failed := false
	noStatus := func(c syscallfault.Call) unix.Errno {
		if c.Name != "ioctl" || c.Request != unix.LOOP_GET_STATUS64 {
			return 0
		}
		failed = true
		return unix.EIO
	}
	under := func(call func() error) (failure error) {
		t.Helper()
		_, err := syscallfault.Run([]string{device.Path}, noStatus, func() { failure = call() })
		must(t, err)
		return failure
	}
	err := under(func() error { return pool.DeleteVolume(t.Context(), volume.ID) })
	if err == nil || !failed {
		t.Errorf("the deletion of a volume in use answered %v, with a status that failed: %t", err, failed)
	}
	if _, err := os.Stat(filepath.Join(dir, volumePath(volume.ID), dataFile)); err != nil {
		t.Errorf("its data: %v", err)
	}
	err = under(func() error {
		second, err := pool.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume.ID, Keep: true})
		if err == nil {
			t.Cleanup(func() { _ = second.Release() })
		}
		return err
	})
	if err == nil {
		t.Error("a volume has a second device, with another page cache")
	}
	must(t, under(func() error { return pool.CloseDevice(t.Context(), volume.ID) }))
	if devices, err := pool.Devices(t.Context(), volume.ID); err != nil || len(devices) != 0 {
		t.Errorf("after it was closed: %+v, %v", devices, err)
	}
}

// A volume whose expansion was interrupted between the file and the record is in
// use at its new size.
func TestWrittenRanges_listsExtentsMissingInTheRecord(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	must(t, os.Truncate(filepath.Join(dir, volumePath(volume.ID), dataFile), 16*mebibyte))
	const at = 12 * mebibyte
	writeVolume(t, pool, volume.ID, at, []byte("data"))
	listed := false
	must(t, pool.WrittenRanges(t.Context(), volume.ID, func(offset, length int64) error {
		listed = listed || offset <= at && at < offset+length
		return nil
	}))
	if !listed {
		t.Error("data beyond the recorded size is not listed: the volume would be formatted over it")
	}
}

// Data without a record is not of an interrupted creation: an administrator may be
// copying a volume back.
func TestDropAbandoned_leavesDataWithoutARecord(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	pool.stopHousekeeping()
	entries := map[string]bool{volumePath(idOf(volumePrefix, "data")): true, volumePath(idOf(volumePrefix, "empty")): false}
	for entry, data := range entries {
		must(t, os.Mkdir(filepath.Join(dir, entry), directoryMode))
		if data {
			must(t, os.WriteFile(filepath.Join(dir, entry, dataFile), []byte("x"), fileMode))
		}
	}
	must(t, pool.dropAbandoned(func(string) bool { return true }))
	for entry, stays := range entries {
		if _, err := os.Stat(filepath.Join(dir, entry)); (err == nil) != stays {
			t.Errorf("an entry with data = %t: %v", stays, err)
		}
	}
}

// The housekeeping finds that an unresolved entry is not on disk, and is overtaken
// by a call that resolves the entry and begins to make it.
func TestResolve_keepsThePromiseOfACallThatOvertookIt(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	pool.stopHousekeeping()
	id := idOf(volumePrefix, "one")
	pool.unresolved.add(volumePath(id), errors.New("a failure"))
	pool.renames.add(trashDir)
	promised := false
	overtake := func(c syscallfault.Call) unix.Errno {
		if c.Path == filepath.Join(dir, trashDir) && !promised {
			promised = true
			must(t, pool.resolve(t.Context(), volumePath(id)))
			must(t, pool.admit(t.Context(), id, 8*mebibyte))
		}
		return 0
	}
	var failure error
	_, err := syscallfault.Run([]string{dir}, overtake, func() { failure = pool.resolve(t.Context(), volumePath(id)) })
	must(t, errors.Join(err, failure))
	if got := pool.ledger.pending[id]; got != 8*mebibyte || !promised {
		t.Errorf("%d bytes are promised to the creation; want %d", got, 8*mebibyte)
	}
}

// A member that cannot be replaced is not forgotten: it is removed when it can be.
func TestCreateGroup_retriesAMemberThatCouldNotBeReplaced(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	pool.stopHousekeeping()
	volume := create(t, pool, spec("one", 8*mebibyte))
	request := backend.GroupSnapshotSpec{Name: "night", SourceIDs: []string{volume.ID}}
	member := snapshotPath(memberID(request.Name, volume.ID))
	_, err := pool.CreateGroup(t.Context(), request)
	must(t, err)
	// As a deletion leaves it that was interrupted after the group's rename.
	must(t, os.RemoveAll(filepath.Join(dir, groupPath(idOf(groupPrefix, request.Name)))))
	pool.index.forget(idOf(groupPrefix, request.Name))
	pool.index.forget(memberID(request.Name, volume.ID))
	pool.unresolved.add(member, errors.New("an interrupted deletion"))
	noRename := func(c syscallfault.Call) unix.Errno {
		if c.Name == "renameat" && c.Path == filepath.Join(dir, member) {
			return unix.EIO
		}
		return 0
	}
	var failure error
	_, err = syscallfault.Run([]string{dir}, noRename, func() { _, failure = pool.CreateGroup(t.Context(), request) })
	must(t, err)
	if failure == nil {
		t.Fatal("the group was made over a member that could not be replaced")
	}
	wantAgreement(t.Context(), t, pool, "a group whose member could not be replaced")
	wantEntries(t, dir, map[string]int{groupsDir: 0, snapshotsDir: 0, trashDir: 0})
}
