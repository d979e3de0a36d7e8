package cloud

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
)

// All pages of EC2, and only what a driver made.
func TestListVolumes_joinsPages(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		ids := r.made(t, pageSize+1)
		if _, err := r.CreateVolume(r.ctx, CreateVolumeInput{Zone: zone, Size: 1, Type: "gp3"}); err != nil {
			t.Fatal(err)
		}
		r.emu.Reset()
		listed, err := r.ListVolumes(r.ctx)
		var got []string
		for _, v := range listed {
			got = append(got, v.ID)
		}
		slices.Sort(ids)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, ids) || r.calls("DescribeVolumes") != 2 {
			t.Errorf("%d calls list %d volumes, want %d: %v", r.calls("DescribeVolumes"), len(got), len(ids), err)
		}
		r.fault(t, ec2emu.Fault{Kind: ec2emu.FaultError, Action: "DescribeVolumes", Code: "InvalidPaginationToken", Status: 400, Skip: 1})
		if listed, err := r.ListVolumes(r.ctx); !errors.Is(err, backend.ErrStaleToken) {
			t.Errorf("with a token that EC2 has forgotten: %d volumes, %v", len(listed), err)
		}
	})
}

// Only the account's own snapshots, and only those a driver made.
func TestListSnapshots_onlyOurs(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		if _, err := r.emu.World().AddForeignSnapshot("999999999999", 1, true); err != nil {
			t.Fatal(err)
		}
		a, b := r.volume(t, "pvc-1"), r.volume(t, "pvc-2")
		var ids []string
		for _, v := range []Volume{a, a, b} {
			s, err := r.CreateSnapshot(r.ctx, CreateSnapshotInput{VolumeID: v.ID, Tags: map[string]string{ManagedTag: "true"}})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, s.ID)
			time.Sleep(20 * time.Second)
		}
		if _, err := r.CreateSnapshot(r.ctx, CreateSnapshotInput{VolumeID: b.ID}); err != nil {
			t.Fatal(err)
		}
		all, err := r.ListSnapshots(r.ctx, "")
		if err != nil || len(all) != 3 {
			t.Errorf("%d snapshots, %v", len(all), err)
		}
		of, err := r.ListSnapshots(r.ctx, b.ID)
		if err != nil || len(of) != 1 || of[0].ID != ids[2] {
			t.Errorf("%+v, %v", of, err)
		}
	})
}
