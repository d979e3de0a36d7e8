package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

func inlineVolume(t *testing.T, pool *Pool) backend.EphemeralVolume {
	t.Helper()
	volume, err := pool.CreateEphemeral(t.Context(), backend.EphemeralSpec{
		Handle: handleOfTests, Target: "/t", Attributes: map[string]string{attributeSize: "8Mi"},
	})
	must(t, err)
	return volume
}

// wantLookup checks the error of a lookup and whether it gives the identity by
// which the node engine takes the volume down without deleting it.
func wantLookup(t *testing.T, pool *Pool, sentinel error, identity bool) {
	t.Helper()
	got, err := pool.EphemeralByHandle(t.Context(), handleOfTests)
	if !errors.Is(err, sentinel) || (got.VolumeID != "") != identity {
		t.Errorf("got %+v, %v; want %v and the identity: %t", got, err, sentinel, identity)
	}
}

func TestEphemeralByHandle_anErrorThatMayPassGivesNoIdentity(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.EMFILE, unix.ENOMEM, unix.EINTR, unix.EACCES} {
		dir := poolDir(t)
		pool := open(t, Options{Pool: dir})
		volume := inlineVolume(t, pool)
		for number := 1; ; number++ {
			var got backend.EphemeralVolume
			var failure error
			record := filepath.Join(dir, volumePath(volume.VolumeID))
			calls, err := syscallfault.Run([]string{record}, syscallfault.Once(number, errno), func() {
				got, failure = pool.EphemeralByHandle(t.Context(), handleOfTests)
			})
			must(t, err)
			if len(calls) < number {
				break
			}
			if failure != nil && (got.VolumeID != "" || errors.Is(failure, backend.ErrNotFound)) {
				t.Errorf("%v at %s: %+v, %v; want no identity", errno, calls[len(calls)-1], got, failure)
			}
			wantLookup(t, pool, nil, true) // the error passed
		}
		wantLookup(t, pool, nil, true)
	}
}

func TestEphemeralByHandle_failedStorageGivesTheIdentity(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":       func(path string) error { return os.Truncate(path, 0) },
		"a directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		t.Run("record "+name, func(t *testing.T) {
			dir := poolDir(t)
			pool := open(t, Options{Pool: dir})
			volume := inlineVolume(t, pool)
			must(t, damage(filepath.Join(dir, volumePath(volume.VolumeID), volumeFile)))
			wantLookup(t, pool, backend.ErrDataLoss, true)
		})
	}
	for _, fsType := range []string{"ext4", "xfs"} {
		t.Run(fsType+" shut down", func(t *testing.T) {
			d := newFailingDisk(t, fsType)
			dir := filepath.Join(d.dir, "pool")
			pool := open(t, Options{Pool: dir})
			inlineVolume(t, pool)
			must(t, unix.Syncfs(descriptor(pool.top)))
			d.goingDown()
			if fsType == "xfs" { // an ext4 still answers from its cache
				wantLookup(t, pool, backend.ErrUnavailable, true)
			}
			shut(t, pool)
			pool = open(t, Options{Pool: dir})
			wantLookup(t, pool, backend.ErrUnavailable, true)
		})
	}
}

// The bad sector or the damaged inode is that of one record: the pool is sound.
func TestEphemeralByHandle_aRecordThatStaysUnreadableIsFailedStorage(t *testing.T) {
	for errno, tries := range map[unix.Errno]int{unix.EUCLEAN: 1, unix.ESHUTDOWN: 1, unix.EIO: failuresUntilFinal} {
		t.Run(errno.Error(), func(t *testing.T) {
			dir := poolDir(t)
			pool := open(t, Options{Pool: dir})
			record := filepath.Join(dir, volumePath(inlineVolume(t, pool).VolumeID))
			unreadable := func(identity bool) {
				t.Helper()
				_, err := syscallfault.Run([]string{record}, syscallfault.From(1, errno), func() { wantLookup(t, pool, errno, identity) })
				must(t, err)
			}
			for range tries - 1 {
				unreadable(false)
			}
			wantLookup(t, pool, nil, true) // one that succeeds proves the storage sound
			for range tries - 1 {
				unreadable(false)
			}
			unreadable(true)
			unreadable(true)
		})
	}
}

// unpublished repeats the node engine's unpublish until the pod can leave: the volume
// is deleted, or the storage failed.
func unpublished(t tester, pool *Pool, handle string) (deleted bool) {
	t.Helper()
	var err error
	for range 2*failuresUntilFinal + 1 {
		var volume backend.EphemeralVolume
		volume, err = pool.EphemeralByHandle(context.Background(), handle)
		if errors.Is(err, backend.ErrNotFound) {
			return true
		}
		if err != nil && volume.VolumeID != "" {
			return false
		}
		if err == nil {
			err = pool.DeleteEphemeral(context.Background(), handle)
		}
	}
	t.Fatalf("the pod of the volume cannot leave: %v", err)
	return false
}

// The record is read from the cache of a filesystem that takes no writes.
func TestDeleteEphemeral_thatCannotSucceedIsFailedStorage(t *testing.T) {
	for name, c := range map[string]struct {
		fsType string
		stop   func(*failingDisk)
	}{
		"ext4 shut down":      {"ext4", (*failingDisk).goingDown},
		"xfs shut down":       {"xfs", (*failingDisk).goingDown},
		"ext4 after an error": {"ext4", (*failingDisk).failWrites},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFailingDisk(t, c.fsType)
			if c.fsType == "ext4" {
				must(t, unix.Mount("", d.dir, "", unix.MS_REMOUNT, "errors=remount-ro"))
			}
			pool := open(t, Options{Pool: filepath.Join(d.dir, "pool")})
			inlineVolume(t, pool)
			must(t, unix.Syncfs(descriptor(pool.top)))
			c.stop(d)
			if unpublished(t, pool, handleOfTests) {
				t.Error("the volume was deleted on a filesystem that takes no writes")
			}
		})
	}
	t.Run("one fault", func(t *testing.T) {
		dir := poolDir(t)
		pool := open(t, Options{Pool: dir})
		inlineVolume(t, pool)
		var failure error
		_, err := syscallfault.Run([]string{dir}, syscallfault.Once(1, unix.EIO), func() { failure = pool.DeleteEphemeral(t.Context(), handleOfTests) })
		must(t, err)
		if failure == nil {
			t.Error("the deletion succeeded; want the fault")
		}
		if !unpublished(t, pool, handleOfTests) {
			t.Error("the volume was not deleted after a fault that passed")
		}
	})
}
