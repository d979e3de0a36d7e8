package local

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/durable"
)

func TestOpen_refusesASecondDaemonOnOnePool(t *testing.T) {
	dir := poolDir(t)
	first := open(t, Options{Pool: dir})
	for _, role := range []Role{RoleAll, RoleController, RoleNode} {
		if _, err := tryOpen(t, Options{Pool: dir, Role: role}); !errors.Is(err, backend.ErrInUse) {
			t.Errorf("role %d: %v; want ErrInUse", role, err)
		}
	}
	shut(t, first)
	open(t, Options{Pool: dir})
}

func TestOpen_letsTheTwoHalvesBeTwoProcesses(t *testing.T) {
	dir := poolDir(t)
	controller := open(t, Options{Pool: dir, Role: RoleController})
	node := open(t, Options{Pool: dir, Role: RoleNode})
	volume := create(t, controller, spec("one", 8*mebibyte)) // after the node half started

	device := openDevice(t, node, backend.DeviceRequest{VolumeID: volume.ID})
	if err := controller.DeleteVolume(t.Context(), volume.ID); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("deletion while the other half has the device: %v; want ErrInUse", err)
	}
	if _, err := controller.Expand(t.Context(), volume, 16*mebibyte); err != nil {
		t.Error(err)
	}
	if size, err := node.ResizeDevice(t.Context(), volume.ID); err != nil || size != 16*mebibyte {
		t.Errorf("the node half sees %d bytes, %v", size, err)
	}
	must(t, device.Release())
	must(t, controller.DeleteVolume(t.Context(), volume.ID))
	if _, err := node.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume.ID}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("after deletion: %v; want ErrNotFound", err)
	}
}

func TestOpen_countsTheOtherHalfsVolumes(t *testing.T) {
	dir := small(t, "ext4", 400*mebibyte)
	controller := open(t, Options{Pool: dir, Role: RoleController})
	node := open(t, Options{Pool: dir, Role: RoleNode})
	inline := backend.EphemeralSpec{Handle: handleOfTests, Target: "/t", Attributes: map[string]string{attributeSize: "200Mi"}}
	if _, err := node.CreateEphemeral(t.Context(), inline); err != nil {
		t.Fatal(err)
	}
	if _, err := controller.CreateVolume(t.Context(), spec("one", 200*mebibyte)); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("next to the inline volume: %v; want ErrNoSpace", err)
	}
	must(t, node.DeleteEphemeral(t.Context(), handleOfTests))
	create(t, controller, spec("one", 200*mebibyte))
	if _, err := node.CreateEphemeral(t.Context(), inline); !errors.Is(err, backend.ErrNoSpace) {
		t.Errorf("next to the volume: %v; want ErrNoSpace", err)
	}
}

func TestOpen_theNodeHalfLeavesHalfMadeVolumesToTheController(t *testing.T) {
	dir := poolDir(t)
	shut(t, open(t, Options{Pool: dir}))
	half := filepath.Join(dir, volumesDir, idOf(volumePrefix, "half"))
	must(t, os.Mkdir(half, 0o700))
	open(t, Options{Pool: dir, Role: RoleNode})
	if _, err := os.Stat(half); err != nil {
		t.Fatalf("the node half removed it: %v", err)
	}
	open(t, Options{Pool: dir, Role: RoleController})
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the controller half left it: %v", err)
	}
}

func TestOpen_adoptsAPoolOfAnotherNodeOnlyWhenTold(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir, NodeID: "old"})
	volume := create(t, pool, spec("one", 8*mebibyte))
	shut(t, pool)

	_, err := tryOpen(t, Options{Pool: dir, NodeID: "new"})
	if !errors.Is(err, backend.ErrPrecondition) || !strings.Contains(err.Error(), "--adopt-pool") {
		t.Fatalf("got %v; want ErrPrecondition that names --adopt-pool", err)
	}
	adopted := open(t, Options{Pool: dir, NodeID: "new", Adopt: true})
	found, err := adopted.Volume(t.Context(), volume.ID)
	if err != nil || found.Topology[0][TopologyKey] != "new" {
		t.Fatalf("got %+v, %v; want the volume at the new node", found, err)
	}
	shut(t, adopted)
	open(t, Options{Pool: dir, NodeID: "new"}) // without the option
}

func TestOpen_rejectsADirectoryThatIsNotAPool(t *testing.T) {
	withFile := poolDir(t)
	must(t, os.WriteFile(filepath.Join(withFile, "diary.txt"), []byte("dear"), 0o600))
	notDirectory := filepath.Join(poolDir(t), "file")
	must(t, os.WriteFile(notDirectory, nil, 0o600))
	for name, c := range map[string]struct {
		options Options
		want    error
	}{
		"other things":     {Options{Pool: withFile}, backend.ErrPrecondition},
		"not mounted":      {Options{Pool: poolDir(t), RequireMount: true}, backend.ErrUnavailable},
		"no directory":     {Options{}, backend.ErrInvalid},
		"bad node ID":      {Options{Pool: poolDir(t), NodeID: "-node-"}, backend.ErrInvalid},
		"low overcommit":   {Options{Pool: poolDir(t), Overcommit: 0.5}, backend.ErrInvalid},
		"negative reserve": {Options{Pool: poolDir(t), Reserve: -1}, backend.ErrInvalid},
	} {
		if _, err := tryOpen(t, c.options); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v; want %v", name, err, c.want)
		}
	}
	if _, err := tryOpen(t, Options{Pool: notDirectory}); err == nil {
		t.Error("a file was taken for a pool")
	}
}

func TestOpen_aPoolThatLostItsIdentityCanBeTakenDownAndAdopted(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"missing":      os.Remove,
		"empty":        func(path string) error { return os.Truncate(path, 0) },
		"not JSON":     func(path string) error { return os.WriteFile(path, []byte("\x00\x00"), 0o600) },
		"without ID":   func(path string) error { return os.WriteFile(path, []byte(`{"version":1}`), 0o600) },
		"a directory":  func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a named pipe": func(path string) error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := poolDir(t)
			pool := open(t, Options{Pool: dir})
			volume := create(t, pool, spec("one", 8*mebibyte))
			must(t, openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, Keep: true}).Release())
			shut(t, pool)
			must(t, damage(filepath.Join(dir, poolFile)))
			damaged := open(t, Options{Pool: dir})
			wantOnlyTeardown(t, damaged, volume.ID)
			shut(t, damaged)
			if name == "a directory" {
				must(t, os.Remove(filepath.Join(dir, poolFile)))
			}
			adopted := open(t, Options{Pool: dir, Adopt: true})
			if _, err := adopted.Volume(t.Context(), volume.ID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOpen_onAMountedFilesystemWhenRequired(t *testing.T) {
	open(t, Options{Pool: disk(t, "ext4", 64*mebibyte), RequireMount: true})
}

// A record that cannot be used affects only its own ID.
func TestOpen_leavesUnusableRecordsAlone(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	good := create(t, pool, spec("good", 8*mebibyte))
	torn := create(t, pool, spec("torn", 8*mebibyte))
	newer := create(t, pool, spec("newer", 8*mebibyte))
	shut(t, pool)
	overwrite(t, dir, torn.ID, `{"version": 1, "id": "vo`)
	overwrite(t, dir, newer.ID, `{"version": 7, "id": "`+newer.ID+`", "state": {"future": true}}`)

	pool = open(t, Options{Pool: dir})
	if _, err := pool.Volume(t.Context(), good.ID); err != nil {
		t.Error(err)
	}
	for id, want := range map[string]error{torn.ID: backend.ErrDataLoss, newer.ID: backend.ErrPrecondition} {
		if _, err := pool.Volume(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("Volume: %v; want %v", err, want)
		}
		if err := pool.DeleteVolume(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("DeleteVolume: %v; want %v", err, want)
		}
		if _, err := pool.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: id}); !errors.Is(err, want) {
			t.Errorf("OpenDevice: %v; want %v", err, want)
		}
		if problems, err := pool.VolumeHealth(t.Context(), id); err != nil || len(problems) != 1 || problems[0].Reason != "RecordUnusable" {
			t.Errorf("VolumeHealth: %+v, %v", problems, err)
		}
		if _, err := os.Stat(filepath.Join(dir, volumesDir, id, dataFile)); err != nil {
			t.Errorf("the data is gone: %v", err)
		}
	}
	if _, err := pool.CreateVolume(t.Context(), spec("torn", 8*mebibyte)); !errors.Is(err, backend.ErrDataLoss) {
		t.Errorf("a creation over it: %v; want ErrDataLoss", err)
	}
	if problems, err := pool.StorageHealth(t.Context()); err != nil || len(problems) == 0 || problems[len(problems)-1].Reason != "RecordsUnusable" {
		t.Errorf("StorageHealth: %+v, %v", problems, err)
	}
}

func overwrite(t *testing.T, dir, id, content string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { _ = root.Close() }()
	must(t, durable.WriteFile(root, filepath.Join(volumesDir, id, volumeFile), []byte(content), 0o600))
}

func TestOpen_worksAsFarAsItCanOnAReadOnlyFilesystem(t *testing.T) {
	dir := disk(t, "ext4", 64*mebibyte)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	shut(t, pool)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))

	pool = open(t, Options{Pool: dir})
	if _, err := pool.Volume(t.Context(), volume.ID); err != nil {
		t.Error(err)
	}
	if _, err := pool.CreateVolume(t.Context(), spec("two", 8*mebibyte)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("creation: %v; want ErrUnavailable", err)
	}
	if err := pool.DeleteVolume(t.Context(), volume.ID); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("deletion: %v; want ErrUnavailable", err)
	}
	if err := pool.Probe(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("probe: %v; want ErrUnavailable", err)
	}
	problems, err := pool.VolumeHealth(t.Context(), volume.ID)
	if err != nil || len(problems) != 1 || problems[0].Reason != "PoolReadOnly" || problems[0].Kind != backend.HealthInaccessible {
		t.Errorf("health: %+v, %v; want PoolReadOnly", problems, err)
	}
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID, ReadOnly: true})
	must(t, device.Release())
}

func TestVolumeHealth_reportsMissingFiles(t *testing.T) {
	dir := disk(t, "ext4", 64*mebibyte)
	pool := open(t, Options{Pool: dir})
	volume := create(t, pool, spec("one", 8*mebibyte))
	data := filepath.Join(dir, volumesDir, volume.ID, dataFile)
	for reason, corrupt := range map[string]func() error{
		"DataFileTruncated": func() error { return os.Truncate(data, mebibyte) },
		"DataFileMissing":   func() error { return os.Remove(data) },
	} {
		if reason == "DataFileMissing" {
			defer func() {
				must(t, pool.DeleteVolume(t.Context(), volume.ID)) // nothing is lost by that any more
			}()
		}
		must(t, os.WriteFile(data, nil, 0o600))
		must(t, os.Truncate(data, volume.Size))
		must(t, corrupt())
		problems, err := pool.VolumeHealth(t.Context(), volume.ID)
		if err != nil || len(problems) != 1 || problems[0].Reason != reason || problems[0].Kind != backend.HealthDataLoss {
			t.Errorf("got %+v, %v; want %s", problems, err, reason)
		}
		if _, err := pool.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: volume.ID}); !errors.Is(err, backend.ErrDataLoss) {
			t.Errorf("%s: OpenDevice: %v; want ErrDataLoss", reason, err)
		}
	}
}

// Blocks that a file on xfs shares can be written to by direct I/O in whole
// blocks of the filesystem only, which sectors of 512 bytes are not.
func TestVolumeHealth_reportsTheLackOfDirectIO(t *testing.T) {
	var lines bytes.Buffer
	pool := open(t, Options{Pool: disk(t, "xfs", 400*mebibyte), Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	volume := create(t, pool, backend.VolumeSpec{Name: "one", Size: 8 * mebibyte, Parameters: map[string]string{parameterSectorSize: "512"}})
	writeVolume(t, pool, volume.ID, 0, make([]byte, 4096))
	must(t, snapshotOf(t, pool, volume.ID))
	for range 2 {
		device := openDevice(t, pool, backend.DeviceRequest{VolumeID: volume.ID})
		problems, err := pool.NodeVolumeHealth(context.Background(), volume.ID)
		if err != nil || len(problems) != 1 || problems[0].Reason != "DirectIOUnavailable" || problems[0].Kind != backend.HealthDegraded {
			t.Errorf("got %+v, %v; want DirectIOUnavailable", problems, err)
		}
		must(t, device.Release())
	}
	if count := strings.Count(lines.String(), "direct I/O was refused"); count != 1 {
		t.Errorf("it was logged %d times:\n%s", count, lines.String())
	}
}
