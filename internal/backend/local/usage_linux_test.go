package local

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// statePool returns the one pool of the report.
func statePool(t *testing.T, pool *Pool) backend.Pool {
	t.Helper()
	reported := pool.Pools(t.Context())
	if len(reported) != 1 || reported[0].Name != pool.options.Pool {
		t.Fatalf("the pools are %+v", reported)
	}
	return reported[0]
}

// The figures of a pool follow what volumes and snapshots occupy, on a filesystem that
// shares blocks and on one that does not.
func TestPools_saysWhatOccupiesThePool(t *testing.T) {
	const written = 20 * mebibyte
	onEveryFilesystem(t, func(t *testing.T, fsType string) {
		pool := open(t, Options{Pool: small(t, fsType, 400*mebibyte)})
		volume := create(t, pool, spec("one", 64*mebibyte))
		writeVolume(t, pool, volume.ID, 0, bytes.Repeat([]byte{1}, written))
		near := func(what string, got, want int64) {
			t.Helper()
			if got < want-mebibyte || got > want+2*mebibyte {
				t.Errorf("%s: %d bytes, want about %d", what, got, want)
			}
		}
		now := statePool(t, pool)
		near("volumes", now.Used.Volumes, written)
		near("snapshots", now.Used.Snapshots, 0)
		if now.Promised != 64*mebibyte || now.Size <= 0 || now.Available <= 0 || len(now.Conditions) != 0 {
			t.Errorf("the state is %+v", now)
		}
		if has := now.Inodes > 0; has != (fsType != "btrfs") || now.InodesFree > now.Inodes {
			t.Errorf("%d inodes, %d free", now.Inodes, now.InodesFree)
		}
		snapshot, err := pool.CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "s", SourceID: volume.ID})
		must(t, err)
		_, err = pool.observe(t.Context())
		must(t, err)
		now = statePool(t, pool)
		near("snapshots", now.Used.Snapshots, written)
		if pool.reflink.Load() {
			near("volumes that share all", now.Used.Volumes, 0)
		} else {
			near("volumes next to a copy", now.Used.Volumes, written)
		}
		must(t, pool.DeleteSnapshot(t.Context(), snapshot.ID))
		_, err = pool.observe(t.Context())
		must(t, err)
		if now = statePool(t, pool); now.Used.Trash != 0 {
			t.Errorf("trash has %d bytes", now.Used.Trash)
		}
		near("snapshots in the end", now.Used.Snapshots, 0)
	})
}

func TestNodeVolumes_haveTheDevicesOfNow(t *testing.T) {
	pool := open(t, Options{Pool: filepath.Join(disk(t, "xfs", 400*mebibyte), "pool")})
	used, idle := create(t, pool, spec("used", 16*mebibyte)), create(t, pool, spec("idle", 16*mebibyte))
	device := openDevice(t, pool, backend.DeviceRequest{VolumeID: used.ID})
	must(t, pool.recordFreeze(used.ID))
	listed, err := pool.NodeVolumes(t.Context())
	must(t, err)
	found := map[string]backend.NodeVolume{}
	for _, volume := range listed {
		found[volume.ID] = volume
	}
	if got := found[used.ID]; len(got.Devices) != 1 || got.Devices[0].Number != device.Number || !got.Frozen || got.Size != 16*mebibyte {
		t.Errorf("the volume in use is %+v", got)
	}
	if got, ok := found[idle.ID]; !ok || len(got.Devices) != 0 || got.Frozen {
		t.Errorf("the other volume is %+v", got)
	}
	must(t, pool.forgetFreeze(used.ID))
}
