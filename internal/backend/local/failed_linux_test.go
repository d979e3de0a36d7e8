package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// failingDisk is a filesystem for a pool that can fail and be mounted again.
type failingDisk struct {
	*testing.T
	fsType, file, dir string
	device            string // while it is mounted
}

func newFailingDisk(t *testing.T, fsType string) *failingDisk {
	t.Helper()
	base := scratchDir(t)
	d := &failingDisk{T: t, fsType: fsType, file: filepath.Join(base, "disk"), dir: filepath.Join(base, "mounted")}
	nodetest.File(t, base, "disk", 400*mebibyte)
	mkfs(t, fsType, d.file)
	must(t, os.Mkdir(d.dir, 0o700))
	d.mount("")
	t.Cleanup(func() {
		for _, name := range nodetest.LoopsBelow(t, d.dir) { // left by a test that failed
			if device, err := os.Open(filepath.Join("/dev", name)); err == nil {
				_, _ = unix.IoctlRetInt(int(device.Fd()), unix.LOOP_CLR_FD)
				_ = device.Close()
			}
		}
		unmount(t, d.dir)
	})
	return d
}

func (d *failingDisk) mount(options string) {
	d.Helper()
	file, err := os.OpenFile(d.file, os.O_RDWR, 0)
	must(d.T, err)
	defer func() { _ = file.Close() }()
	loop, err := blockdev.AttachLoop(d.Context(), blockdev.LoopConfig{File: file, Path: d.file, AutoClear: true})
	must(d.T, err)
	must(d.T, unix.Mount(loop.Path, d.dir, d.fsType, 0, options))
	d.device = loop.Path
	must(d.T, loop.Close())
}

// goingDown shuts the filesystem down as after a failure of its disk:
// XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN are one request.
func (d *failingDisk) goingDown() {
	d.Helper()
	const request, withoutLog = 0x8004587d, 2
	dir, err := os.Open(d.dir)
	must(d.T, err)
	must(d.T, errors.Join(unix.IoctlSetPointerInt(int(dir.Fd()), request, withoutLog), dir.Close()))
}

// failWrites makes ext4 detect an error, after which it rejects writes.
func (d *failingDisk) failWrites() {
	d.Helper()
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
	must(d.T, os.WriteFile(trigger, []byte("a test"), 0o200))
}

func (d *failingDisk) remount(flags uintptr) {
	d.Helper()
	must(d.T, unix.Mount("", d.dir, "", unix.MS_REMOUNT|flags, ""))
}

// wantOnlyTeardown checks that the volume's device can be listed and closed, and that
// all other calls report that the pool is not accessible.
func wantOnlyTeardown(t *testing.T, pool *Pool, id string) {
	t.Helper()
	if err := pool.Probe(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("probe: %v; want ErrUnavailable", err)
	}
	if _, err := pool.CreateVolume(t.Context(), spec("new", mebibyte)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("creation: %v; want ErrUnavailable", err)
	}
	if capacity, err := pool.Capacity(t.Context(), nil, nil); err == nil && capacity.Available > 0 {
		t.Errorf("capacity %+v, %v; want none", capacity, err)
	}
	if problems, err := pool.StorageHealth(t.Context()); err != nil || len(problems) == 0 || problems[0].Kind != backend.HealthInaccessible {
		t.Errorf("health %+v, %v; want that the pool is not accessible", problems, err)
	}
	wantClosed(t, pool, id)
}

// wantNoTransactions checks what shows a stop of writes on Linux before 6.15, whose
// ext4 has no mount option for it.
func wantNoTransactions(t *testing.T, dir string, refused bool) {
	t.Helper()
	open, err := os.Open(dir)
	must(t, err)
	defer func() { must(t, open.Close()) }()
	if got := mount.RefusesTransaction(open); got != refused {
		t.Errorf("%s refuses transactions: %v; want %v", dir, got, refused)
	}
}

func wantClosed(t *testing.T, pool *Pool, id string) {
	t.Helper()
	devices, err := pool.Devices(t.Context(), id)
	if err != nil || len(devices) != 1 {
		t.Fatalf("devices %+v, %v; want one", devices, err)
	}
	must(t, pool.CloseDevice(t.Context(), id))
	must(t, pool.CloseDevice(t.Context(), id))
	if devices, err = pool.Devices(t.Context(), id); err != nil || len(devices) != 0 {
		t.Fatalf("after the close: devices %+v, %v", devices, err)
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Fatalf("%s has %v, %v; want nothing", dir, entries, err)
	}
}

func TestDeadPool_isTakenDownAndComesBack(t *testing.T) {
	for _, fsType := range []string{"ext4", "xfs"} {
		for _, restart := range []bool{false, true} {
			t.Run(fsType+map[bool]string{true: " restarted", false: ""}[restart], func(t *testing.T) {
				d := newFailingDisk(t, fsType)
				dir := filepath.Join(d.dir, "pool")
				pool := open(t, Options{Pool: dir})
				volume := create(t, pool, spec("one", 8*mebibyte))
				must(t, openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true}).Release())
				must(t, unix.Syncfs(descriptor(pool.top)))
				wantNoTransactions(t, d.dir, false)
				d.goingDown()
				if fsType == "ext4" { // an xfs that is shut down cannot be opened
					wantNoTransactions(t, d.dir, true)
				}
				if restart {
					shut(t, pool)
					pool = open(t, Options{Pool: dir})
				}
				wantOnlyTeardown(t, pool, volume.ID)
				if !restart {
					shut(t, pool) // closes the files of the dead filesystem
					pool = open(t, Options{Pool: dir})
				}
				unmount(t, d.dir)
				// Where no filesystem is mounted, no pool is made there instead.
				if err := pool.tidy(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
					t.Fatalf("without its filesystem: %v; want ErrUnavailable", err)
				}
				wantEmpty(t, d.dir)
				d.mount("")
				recovered(t, pool)
				must(t, pool.tidy(t.Context()))
				if _, err := pool.Volume(t.Context(), volume.ID); err != nil {
					t.Fatal(err)
				}
				must(t, pool.Probe(t.Context()))
				create(t, pool, spec("new", mebibyte))
			})
		}
	}
}

// An unreadable record concerns its own volume, and not even its teardown.
func TestUnreadableRecord_doesNotBlockOtherVolumes(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"empty":        func(path string) error { return os.Truncate(path, 0) },
		"a directory":  func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a named pipe": func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
		"missing":      os.Remove,
		"a large size": func(path string) error {
			data, err := os.ReadFile(path)
			text := strings.Replace(string(data), `"size": 8388608`, `"size": 4611686018427387904`, 1)
			return errors.Join(err, os.WriteFile(path, []byte(text), 0o600))
		},
		"another name": func(path string) error {
			data, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, []byte(strings.Replace(string(data), `"one"`, `"two"`, 1)), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := disk(t, "ext4", 400*mebibyte)
			pool := open(t, Options{Pool: dir})
			volume := create(t, pool, spec("one", 8*mebibyte))
			must(t, openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true}).Release())
			shut(t, pool)
			must(t, damage(filepath.Join(dir, volumesDir, volume.ID, volumeFile)))
			pool = open(t, Options{Pool: dir})
			create(t, pool, spec("other", 8*mebibyte))
			if capacity, err := pool.Capacity(t.Context(), nil, nil); err != nil || capacity.Available == 0 {
				t.Errorf("capacity %+v, %v", capacity, err)
			}
			if _, err := pool.Volume(t.Context(), volume.ID); err == nil || errors.Is(err, backend.ErrNotFound) {
				t.Errorf("the volume: %v; want an error that says it cannot be used", err)
			}
			problems, err := pool.StorageHealth(t.Context())
			if err != nil || len(problems) != 1 || problems[0].Reason != "RecordsUnusable" {
				t.Errorf("health %+v, %v; want RecordsUnusable", problems, err)
			}
			wantClosed(t, pool, volume.ID)
			if _, err := os.Stat(filepath.Join(dir, volumesDir, volume.ID, dataFile)); err != nil {
				t.Errorf("its data: %v", err)
			}
		})
	}
}

func TestDataFile_thatIsANamedPipeBlocksNothing(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	path := filepath.Join(dir, volumesDir, volume.ID, dataFile)
	must(t, errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)))
	if _, err := pool.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume.ID}); !errors.Is(err, backend.ErrDataLoss) {
		t.Errorf("open the device: %v; want ErrDataLoss", err)
	}
	if _, err := pool.Capacity(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	create(t, pool, spec("other", 8*mebibyte))
	shut(t, pool)
	pool = open(t, Options{Pool: dir})
	create(t, pool, spec("third", 8*mebibyte))
}

func TestReadOnlyPool_thatIsWrittenToAgainKeepsItsPromises(t *testing.T) {
	for name, stop := range map[string]func(*failingDisk){
		"remounted": func(d *failingDisk) { d.remount(unix.MS_RDONLY) },
		"after an error": func(d *failingDisk) {
			if d.fsType == "ext4" {
				d.failWrites()
			} else {
				d.remount(unix.MS_RDONLY)
			}
		},
	} {
		for _, fsType := range []string{"ext4", "xfs"} {
			t.Run(fsType+" "+name, func(t *testing.T) {
				d := newFailingDisk(t, fsType)
				if fsType == "ext4" {
					must(t, unix.Mount("", d.dir, "", unix.MS_REMOUNT, "errors=remount-ro"))
				}
				dir := filepath.Join(d.dir, "pool")
				pool := open(t, Options{Pool: dir})
				create(t, pool, spec("one", 200*mebibyte))
				if name == "remounted" || fsType == "xfs" {
					shut(t, pool) // no remount while a file is open for writing
					stop(d)
				} else {
					stop(d)
					wantNoTransactions(t, d.dir, true)
					wantReadOnly(t, pool)
					shut(t, pool)
				}
				pool = open(t, Options{Pool: dir})
				wantReadOnly(t, pool)
				if name == "remounted" {
					d.remount(0)
				} else {
					shut(t, pool)
					unmount(t, d.dir)
					d.mount("")
					pool = open(t, Options{Pool: dir})
				}
				recovered(t, pool)
				if _, err := pool.CreateVolume(t.Context(), spec("two", 180*mebibyte)); !errors.Is(err, backend.ErrNoSpace) {
					t.Fatalf("got %v; want ErrNoSpace: 200 MiB of 400 are promised", err)
				}
				create(t, pool, spec("three", 20*mebibyte))
				must(t, pool.Probe(t.Context()))
				wantAgreement(t.Context(), t, pool, "after the remount")
			})
		}
	}
}

func wantReadOnly(t *testing.T, pool *Pool) {
	t.Helper()
	if err := pool.Probe(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("probe: %v; want ErrUnavailable", err)
	}
	if capacity, err := pool.Capacity(t.Context(), nil, nil); err != nil || capacity != (backend.Capacity{}) {
		t.Errorf("capacity %+v, %v; want none", capacity, err)
	}
	if _, err := pool.CreateVolume(t.Context(), spec("two", mebibyte)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("creation: %v; want ErrUnavailable", err)
	}
	problems, err := pool.StorageHealth(t.Context())
	if err != nil || len(problems) == 0 || problems[0].Reason != "PoolReadOnly" {
		t.Errorf("health: %+v, %v; want PoolReadOnly", problems, err)
	}
}
