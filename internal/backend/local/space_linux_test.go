package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
)

// fillDisk takes everything that is left of the pool's filesystem but keep bytes.
func fillDisk(t *testing.T, dir string, keep int64) {
	t.Helper()
	file, err := os.Create(filepath.Join(dir, "..", "ballast"))
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	for size := int64(64 * mebibyte); size >= 4096; {
		var stat unix.Statfs_t
		must(t, unix.Fstatfs(int(file.Fd()), &stat))
		have, err := statOf(file)
		must(t, err)
		if int64(stat.Bavail)*stat.Bsize < keep+size || unix.Fallocate(int(file.Fd()), 0, have.Size, size) != nil {
			size /= 2
		}
	}
}

// small is a pool on a separate filesystem, below its top so that there is room for a
// ballast next to it.
func small(t *testing.T, fsType string, size int64) string {
	t.Helper()
	return filepath.Join(disk(t, fsType, size), "pool")
}

func onEveryFilesystem(t *testing.T, test func(t *testing.T, fsType string)) {
	t.Helper()
	for _, fsType := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) { test(t, fsType) })
	}
}

func thickSpec(name string, size int64) backend.VolumeSpec {
	return backend.VolumeSpec{Name: name, Size: size, Parameters: map[string]string{parameterProvisioning: thick}}
}

func TestCapacity_isNeverMoreThanCreationAccepts(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		for _, provisioning := range []string{thin, thick} {
			t.Run(provisioning, func(t *testing.T) {
				pool := open(t, Options{Pool: small(t, fsType, 400*mebibyte)})
				parameters := map[string]string{parameterProvisioning: provisioning}
				for i := 0; ; i++ {
					capacity, err := pool.Capacity(t.Context(), parameters, nil)
					must(t, err)
					if capacity.MaximumVolumeSize == 0 {
						return
					}
					size := capacity.MaximumVolumeSize
					if i < 3 {
						size = roundUp(size/3, allocationUnit)
					}
					create(t, pool, backend.VolumeSpec{Name: fmt.Sprint(i), Size: size, Parameters: parameters})
				}
			})
		}
	})
}

func TestCapacity_readsNoVolume(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	for _, name := range []string{"one", "two"} {
		create(t, pool, spec(name, 8*mebibyte))
	}
	never := syscallfault.Once(1<<30, unix.EIO)
	calls, err := syscallfault.Run([]string{filepath.Join(dir, volumesDir)}, never, func() {
		if _, err := pool.Capacity(t.Context(), nil, nil); err != nil {
			t.Error(err)
		}
	})
	if err != nil || len(calls) > 0 {
		t.Errorf("system calls on volumes: %v, %v", calls, err)
	}
}

// What a volume writes lowers the capacity until the pool is measured in the background.
func TestCapacity_isMeasuredAfterVolumesWrote(t *testing.T) {
	pool := open(t, Options{Pool: small(t, "xfs", 400*mebibyte)})
	volume := create(t, pool, spec("one", 100*mebibyte))
	capacity := func() int64 {
		now, err := pool.Capacity(t.Context(), nil, nil)
		must(t, err)
		return now.Available
	}
	before := capacity()
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, 100*mebibyte))
	after := capacity()
	for range 6000 {
		if after > before-4*mebibyte && after < before+4*mebibyte {
			return
		}
		time.Sleep(10 * time.Millisecond)
		after = capacity()
	}
	t.Errorf("the capacity is %d bytes; it was %d before a volume wrote what it was promised", after, before)
}

func TestCapacity_isNothingElsewhere(t *testing.T) {
	pool := open(t, Options{Pool: poolDir(t)})
	capacity, err := pool.Capacity(t.Context(), nil, backend.Topology{TopologyKey: "node-2"})
	if err != nil || capacity != (backend.Capacity{}) {
		t.Fatalf("got %+v, %v; want nothing", capacity, err)
	}
}

func TestCapacity_countsThinVolumesByTheOvercommitRatio(t *testing.T) {
	dir := small(t, "ext4", 400*mebibyte)
	once := capacityOf(t, Options{Pool: dir}, thin)
	four := capacityOf(t, Options{Pool: dir, Overcommit: 4}, thin)
	if four < 4*once-8*mebibyte || four > 4*once+8*mebibyte {
		t.Errorf("overcommit 4 gives %d; overcommit 1 gave %d", four, once)
	}
	if fat := capacityOf(t, Options{Pool: dir, Overcommit: 4}, thick); fat > once+8*mebibyte {
		t.Errorf("overcommit gives %d of thick; want no more than %d", fat, once)
	}
}

func capacityOf(t *testing.T, options Options, provisioning string) int64 {
	t.Helper()
	pool := open(t, options)
	defer shut(t, pool)
	capacity, err := pool.Capacity(t.Context(), map[string]string{parameterProvisioning: provisioning}, nil)
	must(t, err)
	return capacity.Available
}

func TestCapacity_keepsRoomForWritingToWhatSnapshotsShare(t *testing.T) {
	pool := open(t, Options{Pool: small(t, "xfs", 400*mebibyte)})
	volume := create(t, pool, spec("one", 100*mebibyte))
	writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, 100*mebibyte))
	_, err := pool.observe(t.Context())
	must(t, err)
	before, err := pool.Capacity(t.Context(), nil, nil)
	must(t, err)
	for _, name := range []string{"s", "t"} { // the second shares the same blocks
		_, err = pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: name, SourceID: volume.ID})
		must(t, err)
	}
	after, err := pool.Capacity(t.Context(), nil, nil)
	must(t, err)
	if taken := before.Available - after.Available; taken < 99*mebibyte || taken > 104*mebibyte {
		t.Fatalf("two snapshots of 100 MiB took %d MiB; want 100", taken/mebibyte)
	}
}

func TestCreateVolume_onAFullPoolLeavesNothing(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 400*mebibyte)
		pool := open(t, Options{Pool: dir})
		source := create(t, pool, thickSpec("source", 32*mebibyte))
		writeVolume(t, pool, source.ID, 0, bytes.Repeat([]byte{1}, 32*mebibyte))
		fillDisk(t, dir, 8*mebibyte)
		pool.reserved = -gibibyte // the books are made to believe in room, so that the filesystem is what refuses
		for name, act := range map[string]func() error{
			"create":   func() error { _, err := pool.CreateVolume(t.Context(), thickSpec("two", 64*mebibyte)); return err },
			"snapshot": func() error { return snapshotOf(t, pool, source.ID) },
			"expand":   func() error { _, err := pool.Expand(t.Context(), source, 96*mebibyte); return err },
		} {
			if err := act(); !errors.Is(err, backend.ErrNoSpace) {
				t.Errorf("%s: got %v; want ErrNoSpace", name, err)
			}
		}
		wantEntries(t, dir, map[string]int{volumesDir: 1, snapshotsDir: 0, trashDir: 0})
		if got := readVolume(t, pool, source.ID, 0, 4096); !bytes.Equal(got, bytes.Repeat([]byte{1}, 4096)) {
			t.Error("the volume lost its content")
		}
		must(t, pool.DeleteVolume(t.Context(), source.ID))
	})
}

func snapshotOf(t *testing.T, pool *Pool, id string) error {
	_, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "s", SourceID: id})
	return err
}

func wantEntries(t *testing.T, dir string, want map[string]int) {
	t.Helper()
	for sub, count := range want {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		must(t, err)
		if len(entries) != count {
			t.Errorf("%s has %v; want %d entries", sub, entries, count)
		}
	}
}

func TestCreateVolume_manyAtOnceGetNoByteTwice(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		pool := open(t, Options{Pool: small(t, fsType, 400*mebibyte)})
		results := make(chan error)
		for i := range 20 {
			go func() {
				_, err := pool.CreateVolume(t.Context(), thickSpec(fmt.Sprint(i), 50*mebibyte))
				results <- err
			}()
		}
		made := 0
		for range 20 {
			switch err := <-results; {
			case err == nil:
				made++
			case !errors.Is(err, backend.ErrNoSpace):
				t.Error(err)
			}
		}
		volumes, err := pool.Volumes(t.Context(), "", 0)
		if err != nil || len(volumes) != made || made < 3 || made > 7 {
			t.Errorf("%d were made of 20, %d are listed, %v", made, len(volumes), err)
		}
		for _, volume := range volumes {
			if got := allocatedOf(t, pool, volume.ID); got < volume.Size {
				t.Errorf("%s has %d bytes of %d", volume.ID, got, volume.Size)
			}
		}
	})
}

func TestCreateVolume_refusesMoreThanTheLedgerCanPromise(t *testing.T) {
	dir := small(t, "ext4", 400*mebibyte)
	pool := open(t, Options{Pool: dir})
	create(t, pool, spec("one", 300*mebibyte))
	if _, err := pool.CreateVolume(t.Context(), spec("two", 200*mebibyte)); !errors.Is(err, backend.ErrNoSpace) {
		t.Fatalf("got %v; want ErrNoSpace", err)
	}
	wantEntries(t, dir, map[string]int{volumesDir: 1, trashDir: 0})
	must(t, pool.DeleteVolume(t.Context(), idOf(volumePrefix, "one")))
	create(t, pool, spec("two", 200*mebibyte))
}

// A thick volume has its blocks independent of other volumes, also when they
// were written before, discarded by their user, and copied to a snapshot or a clone.
func TestThickVolume_neverRunsOutOfSpace(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		for name, duplicate := range map[string]func(*Pool, backend.Volume){
			"snapshot": func(pool *Pool, volume backend.Volume) { must(t, snapshotOf(t, pool, volume.ID)) },
			"clone":    func(pool *Pool, volume backend.Volume) { cloneOf(t, pool, volume, "two") },
		} {
			t.Run(name, func(t *testing.T) {
				dir := small(t, fsType, 400*mebibyte)
				pool := open(t, Options{Pool: dir})
				volume := create(t, pool, thickSpec("one", 64*mebibyte))
				writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, 32*mebibyte))
				discardVolume(t, pool, volume.ID)
				duplicate(pool, volume)
				fillDisk(t, dir, 0)
				want := bytes.Repeat([]byte{2}, 64*mebibyte)
				writeVolume(t, pool, volume.ID, 0, want)
				if got := readVolume(t, pool, volume.ID, 0, len(want)); !bytes.Equal(got, want) {
					t.Fatal("the content differs from the written one")
				}
			})
		}
	})
}

// xfs wants room for all that a call of fallocate(2) names, also where blocks are.
func TestThickVolume_growsWhereOnlyTheGrowthHasRoom(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 400*mebibyte)
		pool := open(t, Options{Pool: dir})
		volume := create(t, pool, thickSpec("one", 128*mebibyte))
		writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, mebibyte))
		capacity, err := pool.Capacity(t.Context(), map[string]string{parameterProvisioning: thick}, nil)
		must(t, err)
		create(t, pool, thickSpec("rest", capacity.MaximumVolumeSize-64*mebibyte))
		if _, err := guard.New(pool).Expand(t.Context(), volume.ID, backend.SizeRange{Required: 160 * mebibyte}); err != nil {
			t.Fatal(err)
		}
	})
}

// cloneOf creates a thin volume with the content of another one.
func cloneOf(t *testing.T, pool *Pool, volume backend.Volume, name string) backend.Volume {
	t.Helper()
	return create(t, pool, backend.VolumeSpec{Name: name, Size: volume.Size, Source: backend.Source{VolumeID: volume.ID}})
}

// A volume and its clone share blocks with a snapshot of the clone, which never releases
// them: both volumes need new ones for what they write.
func TestCapacity_keepsRoomForAVolumeAndItsCloneWithASnapshot(t *testing.T) {
	for _, fsType := range []string{"xfs", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			pool := open(t, Options{Pool: small(t, fsType, 600*mebibyte)})
			const size = 64 * mebibyte
			volume := create(t, pool, spec("one", size))
			writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, size))
			clone := cloneOf(t, pool, volume, "two")
			must(t, snapshotOf(t, pool, clone.ID))
			parameters := map[string]string{parameterProvisioning: thick}
			rest, err := pool.Capacity(t.Context(), parameters, nil)
			must(t, err)
			create(t, pool, thickSpec("rest", rest.MaximumVolumeSize))
			for _, id := range []string{volume.ID, clone.ID} {
				if err := tryWrite(t, pool, id, bytes.Repeat([]byte{2}, size)); err != nil {
					t.Errorf("volume %s has no room for what it was promised: %v", id, err)
				}
			}
		})
	}
}

// discardVolume tries to give all blocks back, which a thick volume's device refuses.
func discardVolume(t *testing.T, pool *Pool, id string) {
	t.Helper()
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	must(t, err)
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, device.Size)
	must(t, file.Close())
	must(t, device.Release())
	if err == nil {
		t.Log("the punch was turned into zeroes")
	}
}

func TestThinVolume_thatFillsThePoolFailsAloneAndThePoolLives(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 400*mebibyte)
		pool := open(t, Options{Pool: dir})
		volume := create(t, pool, spec("one", 64*mebibyte))
		other := create(t, pool, spec("other", 8*mebibyte))
		writeVolume(t, pool, other.ID, 0, bytes.Repeat([]byte{3}, 8*mebibyte))
		fillDisk(t, dir, 2*mebibyte)
		if err := tryWrite(t, pool, volume.ID, bytes.Repeat([]byte{1}, 64*mebibyte)); err == nil {
			t.Fatal("64 MiB were written without room for them")
		}
		if got := readVolume(t, pool, other.ID, 0, 4096); !bytes.Equal(got, bytes.Repeat([]byte{3}, 4096)) {
			t.Error("the other volume lost its content")
		}
		problems, err := pool.VolumeHealth(t.Context(), volume.ID)
		if err != nil || len(problems) != 1 || problems[0].Reason != "PoolNearlyFull" {
			t.Errorf("health %+v, %v; want PoolNearlyFull", problems, err)
		}
		must(t, pool.DeleteVolume(t.Context(), volume.ID))
	})
}

func tryWrite(t *testing.T, pool *Pool, id string, data []byte) error {
	t.Helper()
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: id})
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt(data, 0)
	err = errors.Join(err, file.Sync())
	_ = file.Close()
	must(t, device.Release())
	return err
}

func TestCreateVolume_readsZerosWhereAnotherVolumeWas(t *testing.T) {
	t.Parallel()
	for _, provisioning := range []string{thin, thick} {
		onEveryFilesystem(t, func(t *testing.T, fsType string) {
			pool := open(t, Options{Pool: small(t, fsType, 400*mebibyte)})
			parameters := map[string]string{parameterProvisioning: provisioning}
			const size = 200 * mebibyte // the second cannot but reuse blocks of the first
			first := create(t, pool, backend.VolumeSpec{Name: "first", Size: size, Parameters: parameters})
			writeVolume(t, pool, first.ID, 0, bytes.Repeat([]byte("secret! "), size/8))
			must(t, pool.DeleteVolume(t.Context(), first.ID))
			second := create(t, pool, backend.VolumeSpec{Name: "second", Size: size, Parameters: parameters})
			if got := readVolume(t, pool, second.ID, 0, size); !bytes.Equal(got, make([]byte, size)) {
				t.Fatal("a fresh volume has content")
			}
		})
	}
}

func TestModify_toThickWithoutRoomLeavesTheVolumeAsItWas(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 400*mebibyte)
		pool := open(t, Options{Pool: dir})
		volume := create(t, pool, spec("one", 128*mebibyte))
		writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, 4*mebibyte))
		fillDisk(t, dir, 16*mebibyte)
		pool.reserved = -gibibyte // see above
		before := allocatedOf(t, pool, volume.ID)
		err := pool.Modify(t.Context(), volume, map[string]string{parameterProvisioning: thick}, nil)
		if !errors.Is(err, backend.ErrNoSpace) {
			t.Fatalf("got %v; want ErrNoSpace", err)
		}
		if after := allocatedOf(t, pool, volume.ID); after > before+allocationUnit {
			t.Errorf("%d bytes are allocated after the refusal, %d before", after, before)
		}
		if record, err := pool.recordOnDisk(volume.ID); err != nil || record.Provisioning != thin {
			t.Errorf("got %+v, %v; want a thin volume", record, err)
		}
		if got := readVolume(t, pool, volume.ID, 0, 4096); !bytes.Equal(got, bytes.Repeat([]byte{1}, 4096)) {
			t.Error("the volume lost its content")
		}
	})
}

func allocatedOf(t *testing.T, pool *Pool, id string) int64 {
	t.Helper()
	data, err := pool.openData(volumePath(id), os.O_RDONLY)
	must(t, err)
	defer func() { _ = data.Close() }()
	bytes, err := allocated(data)
	must(t, err)
	return bytes
}
