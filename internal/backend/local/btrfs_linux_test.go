package local

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// On btrfs a hole in an extent frees nothing, and blocks that are written one by
// one cost much metadata. What was promised can be written all the same.
func TestBtrfs_whatWasPromisedCanBeWritten(t *testing.T) {
	t.Parallel()
	const busy = 48 * mebibyte
	pool := open(t, Options{Pool: small(t, "btrfs", 640*mebibyte)})
	one := create(t, pool, spec("one", busy))
	capacity, err := pool.Capacity(t.Context(), nil, nil)
	must(t, err)
	// One part in four stays for the snapshots.
	two := create(t, pool, spec("two", roundUp(capacity.MaximumVolumeSize*3/4, allocationUnit)))
	content := bytes.Repeat([]byte("content "), busy/8)
	for round := range 15 {
		writeVolume(t, pool, one.ID, 0, content)
		discardAllBut(t, pool, one.ID, int64(round)+1)
	}
	writeVolume(t, pool, one.ID, 0, content)
	for round := range 12 {
		snapshot, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: fmt.Sprint("s", round), SourceID: one.ID})
		if errors.Is(err, backend.ErrNoSpace) {
			t.Logf("snapshot %d was refused", round)
			break
		}
		must(t, err)
		writeVolume(t, pool, one.ID, 0, content[:busy-4096*(round+1)])
		must(t, pool.DeleteSnapshot(t.Context(), snapshot.ID))
	}
	fillRandomly(t, pool, two.ID, two.Size)
	fillRandomly(t, pool, one.ID, one.Size)
}

// discardAllBut discards the blocks of a volume but for the first few in each
// stride: one more each time, so that a block of every extent that was ever
// written stays.
func discardAllBut(t *testing.T, pool *Pool, id string, kept int64) {
	t.Helper()
	const stride, block = 64 << 10, 4096
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	must(t, err)
	for at := int64(0); at < device.Size; at += stride {
		if err := punch(file, at+kept*block, stride-kept*block); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
	}
	must(t, errors.Join(file.Sync(), file.Close(), device.Release()))
}

func fillRandomly(t *testing.T, pool *Pool, id string, size int64) {
	t.Helper()
	const block = 4096
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.OpenFile(device.Path, os.O_RDWR|unix.O_DIRECT, 0)
	must(t, err)
	buffer, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	must(t, err)
	copy(buffer, "not zero")
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(int(size / block)) {
		if _, err := file.WriteAt(buffer, int64(at)*block); err != nil {
			t.Fatalf("after %d of %d bytes: %v", i*block, size, err)
		}
	}
	must(t, errors.Join(file.Sync(), file.Close(), device.Release(), unix.Munmap(buffer)))
}
