package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func spec(name string, size int64) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Size: size}
}

func TestCreateVolume_isThereAfterReopening(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	made := create(t, pool, spec("one", 8*mebibyte))
	shut(t, pool)

	found, err := open(t, Options{Pool: dir}).VolumeByName(t.Context(), "one")
	if err != nil || found.ID != made.ID || found.Size != 8*mebibyte {
		t.Fatalf("got %+v, %v; want %+v", found, err, made)
	}
}

func TestCreateVolume_refusesTheNameWithOtherArguments(t *testing.T) {
	pool := open(t, Options{Pool: poolDir(t)})
	create(t, pool, spec("one", 8*mebibyte))
	if _, err := pool.CreateVolume(t.Context(), spec("one", 9*mebibyte)); !errors.Is(err, backend.ErrExists) {
		t.Fatalf("got %v; want ErrExists", err)
	}
}

func TestDeleteVolume_refusesAnAttachedVolumeAndRemovesOthers(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID})
	if err := pool.DeleteVolume(t.Context(), volume.ID); !errors.Is(err, backend.ErrInUse) {
		t.Fatalf("attached: %v; want ErrInUse", err)
	}
	if err := device.Release(); err != nil {
		t.Fatal(err)
	}
	if err := pool.DeleteVolume(t.Context(), volume.ID); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{volumesDir, trashDir} {
		if left, err := os.ReadDir(filepath.Join(dir, sub)); err != nil || len(left) > 0 {
			t.Errorf("%s has %v, %v", sub, left, err)
		}
	}
}

func TestOpenDevice_keepsDataAndReadsBackDirectIO(t *testing.T) {
	pool := open(t, Options{Pool: poolDir(t)})
	volume := create(t, pool, spec("one", 8*mebibyte))
	want := bytes.Repeat([]byte("kelp"), 1024)
	writeVolume(t, pool, volume.ID, 4096, want)
	if got := readVolume(t, pool, volume.ID, 4096, len(want)); !bytes.Equal(got, want) {
		t.Fatal("the content did not survive detaching")
	}
}
