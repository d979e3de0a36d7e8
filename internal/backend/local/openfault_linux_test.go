package local

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

func points(t *testing.T, terms string) *failpoint.Set {
	t.Helper()
	set, err := failpoint.Parse(terms)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestOpen_aFullPoolCanBeStartedAndEmptied(t *testing.T) {
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		dir := small(t, fsType, 300<<20)
		pool := open(t, Options{Pool: dir})
		volume := create(t, pool, backend.VolumeSpec{Name: "kept", Size: 16 << 20})
		shut(t, pool)
		fillDisk(t, dir, 0)
		again := open(t, Options{Pool: dir})
		if err := again.DeleteVolume(t.Context(), volume.ID); err != nil {
			t.Fatalf("deleting on a full pool: %v", err)
		}
		wantEntries(t, dir, map[string]int{"volumes": 0, "trash": 0})
	})
}

func TestDeleteVolume_thatFailsAfterTheRenameIsDone(t *testing.T) {
	for _, point := range []string{"local/discard/renamed", "local/discard/removed"} {
		t.Run(filepath.Base(point), func(t *testing.T) {
			pool := open(t, Options{Pool: poolDir(t), Failpoints: points(t, point+"=error")})
			wantForgotten(t, pool, func(id string) error { return pool.DeleteVolume(t.Context(), id) })
		})
	}
}

func TestDeleteVolume_ofADirectoryThatWasRemovedByHand(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	wantForgotten(t, pool, func(id string) error {
		if err := os.RemoveAll(filepath.Join(dir, "volumes", id)); err != nil {
			t.Fatal(err)
		}
		return pool.DeleteVolume(t.Context(), id)
	})
}

// wantForgotten removes a volume and checks that its name is free.
func wantForgotten(t *testing.T, pool *Pool, remove func(id string) error) {
	t.Helper()
	spec := backend.VolumeSpec{Name: "gone", Size: 16 << 20}
	volume := create(t, pool, spec)
	if err := remove(volume.ID); err == nil {
		t.Fatal("nothing failed")
	}
	if _, err := pool.Volume(t.Context(), volume.ID); !errors.Is(err, backend.ErrNotFound) {
		t.Fatalf("the volume is still known: %v", err)
	}
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: create(t, pool, spec).ID})
	if err := device.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteGroup_thatFailsHalfwayLeavesNeitherGroupNorMember(t *testing.T) {
	pool := open(t, Options{Pool: poolDir(t), Failpoints: points(t, "local/discard/renamed=error")})
	g := guard.New(pool)
	one := create(t, pool, backend.VolumeSpec{Name: "one", Size: 16 << 20})
	spec := backend.GroupSnapshotSpec{Name: "night", SourceIDs: []string{one.ID}}
	group, err := g.CreateGroup(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.DeleteGroup(t.Context(), group.ID, nil); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("got %v; want the injected failure", err)
	}
	if left, err := pool.Snapshots(t.Context(), backend.SnapshotFilter{}, "", 0); err != nil || len(left) > 0 {
		t.Fatalf("members %+v, %v are left", left, err)
	}
	if err := g.DeleteGroup(t.Context(), group.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := g.CreateGroup(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_aRecordThatCannotBeReadDoesNotAffectOtherEntries(t *testing.T) {
	dir := poolDir(t)
	pool := open(t, Options{Pool: dir})
	sound := create(t, pool, backend.VolumeSpec{Name: "sound", Size: 16 << 20})
	damaged := create(t, pool, backend.VolumeSpec{Name: "damaged", Size: 16 << 20})
	shut(t, pool)
	record := filepath.Join(dir, "volumes", damaged.ID, "volume.json")
	if err := errors.Join(os.Remove(record), os.Mkdir(record, 0o700)); err != nil {
		t.Fatal(err)
	}
	again := open(t, Options{Pool: dir})
	if _, err := again.Volume(t.Context(), sound.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Volume(t.Context(), damaged.ID); err == nil || errors.Is(err, backend.ErrNotFound) {
		t.Fatalf("the damaged volume: %v; want an error that says it cannot be used", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "volumes", damaged.ID, "data")); err != nil {
		t.Fatalf("its data: %v", err)
	}
}

func TestCreateEphemeral_countsWhatTheOtherHalfExpanded(t *testing.T) {
	dir := small(t, "ext4", 1<<30)
	node := open(t, Options{Pool: dir, Role: RoleNode})
	controller := open(t, Options{Pool: dir, Role: RoleController})
	one := create(t, controller, backend.VolumeSpec{Name: "one", Size: 100 << 20})
	inline := func(digit, size string) error {
		_, err := node.CreateEphemeral(t.Context(), backend.EphemeralSpec{
			Handle: "csi-" + strings.Repeat(digit, 64), Target: "/pods/1/mount", Attributes: map[string]string{"size": size},
		})
		return err
	}
	if err := inline("0", "1Mi"); err != nil {
		t.Fatal(err)
	}
	if _, err := controller.Expand(t.Context(), one, 700<<20); err != nil {
		t.Fatal(err)
	}
	if err := inline("1", "400Mi"); !errors.Is(err, backend.ErrNoSpace) {
		t.Fatalf("got %v; want ErrNoSpace", err)
	}
}

// The blocks that a snapshot shares are not the volume's own any more: each write to them
// needs new ones.
func TestCreateEphemeral_countsWhatASnapshotOfTheOtherHalfShares(t *testing.T) {
	dir := small(t, "xfs", 1<<30)
	node := open(t, Options{Pool: dir, Role: RoleNode})
	controller := open(t, Options{Pool: dir, Role: RoleController})
	one := create(t, controller, backend.VolumeSpec{Name: "one", Size: 300 << 20})
	data, err := os.OpenFile(filepath.Join(dir, "volumes", one.ID, "data"), os.O_RDWR, 0)
	must(t, err)
	_, err = data.WriteAt(bytes.Repeat([]byte{1}, 300<<20), 0)
	must(t, errors.Join(err, data.Sync(), data.Close()))
	inline := func(digit, size string) error {
		_, err := node.CreateEphemeral(t.Context(), backend.EphemeralSpec{
			Handle: "csi-" + strings.Repeat(digit, 64), Target: "/pods/1/mount", Attributes: map[string]string{"size": size},
		})
		return err
	}
	must(t, inline("0", "1Mi"))
	_, err = controller.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "s", SourceID: one.ID})
	must(t, err)
	if err := inline("1", "500Mi"); !errors.Is(err, backend.ErrNoSpace) {
		t.Fatalf("got %v; want ErrNoSpace", err)
	}
}

func TestOpen_twoHalvesDoNotPromiseTheSameRoom(t *testing.T) {
	dir := small(t, "ext4", 1<<30)
	node := open(t, Options{Pool: dir, Role: RoleNode})
	controller := open(t, Options{Pool: dir, Role: RoleController})
	for name, size := range map[string]int64{"one": 600 << 20, "two": 250 << 20} {
		create(t, controller, backend.VolumeSpec{Name: name, Size: size})
	}
	_, err := node.CreateEphemeral(t.Context(), backend.EphemeralSpec{
		Handle: "csi-" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		Target: "/pods/1/mount", Attributes: map[string]string{"size": "400Mi"},
	})
	if !errors.Is(err, backend.ErrNoSpace) {
		t.Fatalf("got %v; want ErrNoSpace", err)
	}
}
