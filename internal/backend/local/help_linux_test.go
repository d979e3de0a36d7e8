package local

import (
	"os"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// poolDir is a directory for a pool on the machine's own filesystem, which may be
// nearly full: tests of health and of free space use a separate disk.
func poolDir(t testing.TB) string {
	t.Helper()
	return nodetest.Dir(t)
}

// open opens a pool that is closed when the test ends.
func open(t testing.TB, options Options) *Pool {
	t.Helper()
	pool, err := tryOpen(t, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return pool
}

func tryOpen(t testing.TB, options Options) (*Pool, error) {
	t.Helper()
	if options.NodeID == "" {
		options.NodeID = "node-1"
	}
	return Open(t.Context(), options)
}

func shut(t testing.TB, pool *Pool) {
	t.Helper()
	if err := pool.Close(); err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, pool *Pool, spec backend.VolumeSpec) backend.Volume {
	t.Helper()
	volume, err := pool.CreateVolume(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return volume
}

func openDevice(t testing.TB, pool *Pool, request backend.DeviceRequest) *backend.Device {
	t.Helper()
	device, err := pool.OpenDevice(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Release() })
	return device
}

// writeVolume writes through the volume's device.
func writeVolume(t testing.TB, pool *Pool, id string, offset int64, data []byte) {
	t.Helper()
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteAt(data, offset)
	for _, err := range []error{err, file.Sync(), file.Close(), device.Release()} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func readVolume(t testing.TB, pool *Pool, id string, offset int64, length int) []byte {
	t.Helper()
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.Open(device.Path)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, length)
	_, err = file.ReadAt(data, offset)
	for _, err := range []error{err, file.Close(), device.Release()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return data
}
