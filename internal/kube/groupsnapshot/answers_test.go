package groupsnapshot

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestContent_recordsTheAnswer(t *testing.T) {
	s := suite()
	o := s.Start(t, nil, s.Make("a")).Done("a")
	yes, at, size := true, csidriver.SnapshotTime().UnixNano(), int64(1<<30)
	info := func(volume string) groupv1.VolumeSnapshotInfo {
		return groupv1.VolumeSnapshotInfo{
			VolumeHandle: volume, SnapshotHandle: s.Taken("a").ID + "-" + volume, CreationTime: &at, ReadyToUse: &yes, RestoreSize: &size,
		}
	}
	if diff := cmp.Diff([]groupv1.VolumeSnapshotInfo{info("vol-1"), info("vol-2")}, o.Status.VolumeSnapshotInfoList); diff != "" {
		t.Error(diff)
	}
}

func TestContent_withoutCreationTimeGetsTheCurrentTime(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.NoTime, driver.Snapshots.Size = true, -1
	o := s.Start(t, driver, s.Make("a")).Done("a")
	if time.Since(o.Status.CreationTime.Time) > time.Minute {
		t.Errorf("taken at %v", o.Status.CreationTime)
	}
	for _, info := range o.Status.VolumeSnapshotInfoList {
		if time.Since(time.Unix(0, *info.CreationTime)) > time.Minute || info.RestoreSize != nil {
			t.Errorf("%+v", info)
		}
	}
}

func TestContent_isReadyWhenAllItsMembersAre(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.UnreadyAnswers = 3
	driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) { g.ReadyToUse = true } // before its members are
	for _, info := range s.Start(t, driver, s.Make("a")).Done("a").Status.VolumeSnapshotInfoList {
		if !*info.ReadyToUse {
			t.Errorf("ready, but its member is %+v", info)
		}
	}
}

func TestContent_membersAreRefreshedOneByOne(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	var all atomic.Bool
	driver.Snapshots.Answer = func(one *csi.Snapshot) { one.ReadyToUse = one.GetSourceVolumeId() == "vol-2" || all.Load() }
	f := s.Start(t, driver, s.Make("a"))
	half := f.Becomes("a", "taken", func(o object) bool { return handleOf(o) != "" && !s.IsMarked(o) })
	if infos := half.Status.VolumeSnapshotInfoList; ready(half) || *infos[0].ReadyToUse || !*infos[1].ReadyToUse {
		t.Errorf("%+v", half.Status)
	}
	all.Store(true)
	if !*f.Done("a").Status.VolumeSnapshotInfoList[0].ReadyToUse {
		t.Error("the member's readiness was not refreshed")
	}
}

func TestContent_membersKeepTheirOrderAndRecordedFields(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.UnreadyAnswers = 2
	var answers atomic.Int64
	driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) { // other sizes each time, and another order from the second on
		if answers.Add(1) > 1 {
			slices.Reverse(g.GetSnapshots())
		}
		for _, one := range g.GetSnapshots() {
			one.SizeBytes = answers.Load() * 1000
		}
	}
	infos := s.Start(t, driver, s.Make("a")).Done("a").Status.VolumeSnapshotInfoList
	if infos[0].VolumeHandle != "vol-1" || infos[1].VolumeHandle != "vol-2" {
		t.Errorf("members of %s, %s", infos[0].VolumeHandle, infos[1].VolumeHandle)
	}
	if *infos[0].RestoreSize != 1000 || *infos[1].RestoreSize != 1000 {
		t.Errorf("sizes that snapshot-controller may have copied became %d, %d", *infos[0].RestoreSize, *infos[1].RestoreSize)
	}
}

// lie returns a driver's changed answers.
func lie(answer func(*csi.VolumeGroupSnapshot)) func(*csidriver.Driver, func() bool) {
	return func(d *csidriver.Driver, lying func() bool) {
		d.Groups.Answer = func(g *csi.VolumeGroupSnapshot) {
			if lying() {
				answer(g)
			}
		}
	}
}

func TestAnswer_invalidLeavesTheOutcomeUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(*csi.VolumeGroupSnapshot)
		shown  string
	}{
		"no ID":            {func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = "" }, "without a group_snapshot_id"},
		"no members":       {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = nil }, `asked for were ["vol-1" "vol-2"]`},
		"a missing member": {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = g.Snapshots[:1] }, `of the volumes ["vol-1"]`},
		"a member twice":   {func(g *csi.VolumeGroupSnapshot) { g.Snapshots = append(g.Snapshots, g.Snapshots[0]) }, "twice"},
		"a stranger": {func(g *csi.VolumeGroupSnapshot) {
			g.Snapshots = append(g.Snapshots, &csi.Snapshot{SnapshotId: "x", SourceVolumeId: "vol-x"})
		}, `["vol-1" "vol-2" "vol-x"]`},
		"one ID for two":      {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = g.Snapshots[0].SnapshotId }, "twice"},
		"another volume":      {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SourceVolumeId = "vol-other" }, `"vol-other"`},
		"a member without ID": {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "" }, `the ID ""`},
		"a negative size":     {func(g *csi.VolumeGroupSnapshot) { g.Snapshots[0].SizeBytes = -5 }, "-5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite().InvalidAnswer(t, lie(row.answer), row.shown)
		})
	}
}

func TestAnswer_laterWithAnotherGroupIsRejected(t *testing.T) {
	for name, answer := range map[string]func(*csi.VolumeGroupSnapshot){
		"another group":  func(g *csi.VolumeGroupSnapshot) { g.GroupSnapshotId = "another" },
		"another member": func(g *csi.VolumeGroupSnapshot) { g.Snapshots[1].SnapshotId = "another" },
	} {
		t.Run(name, func(t *testing.T) { suite().ChangedAnswer(t, lie(answer)) })
	}
}
