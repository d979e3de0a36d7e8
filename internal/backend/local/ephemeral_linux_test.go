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
