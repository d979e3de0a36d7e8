package cloud

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Pages as small as one item, although EC2 has none below five, and only
// what is ours.
func TestList_pagesOfEverySize(t *testing.T) {
	emulated(t, bench(), Options{}, func(t *testing.T, r *rig) {
		ids := r.made(t, 23)
		if _, err := r.CreateVolume(r.ctx, CreateVolumeInput{Zone: zone, Size: 1, Type: "gp3"}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(ids)
		for _, limit := range []int{0, 1, 2, 3, 5, 7, 23, 100} {
			var got []string
			token := ""
			for {
				page, next, err := r.ListVolumes(r.ctx, token, limit)
				if err != nil {
					t.Fatal(err)
				}
				if limit > 0 && len(page) > limit {
					t.Errorf("a page of %d has %d", limit, len(page))
				}
				for _, v := range page {
					got = append(got, v.ID)
				}
				if token = next; token == "" {
					break
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, ids) {
				t.Errorf("pages of %d list %d volumes, want %d", limit, len(got), len(ids))
			}
		}
		for _, token := range []string{"x", "!!", position{Token: "unknown", Size: 5}.String()} {
			if _, _, err := r.ListVolumes(r.ctx, token, 5); !errors.Is(err, backend.ErrStaleToken) {
				t.Errorf("token %q: %v", token, err)
			}
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
		all, next, err := r.ListSnapshots(r.ctx, SnapshotQuery{}, "", 0)
		if err != nil || next != "" || len(all) != 3 {
			t.Errorf("%d snapshots, %q, %v", len(all), next, err)
		}
		of, _, err := r.ListSnapshots(r.ctx, SnapshotQuery{VolumeID: b.ID}, "", 1)
		if err != nil || len(of) != 1 || of[0].ID != ids[2] {
			t.Errorf("%+v, %v", of, err)
		}
	})
}
