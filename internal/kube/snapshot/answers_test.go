package snapshot

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestContent_recordsTheAnswer(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Before = func(_ context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateSnapshotRequest); ok && create.GetSourceVolumeId() != "vol-a" {
			t.Errorf("requested of volume %q", create.GetSourceVolumeId())
		}
		return nil
	}
	o := s.Start(t, driver, s.Make("a")).Done("a")
	if at, size := *o.Status.CreationTime, *o.Status.RestoreSize; at != csidriver.SnapshotTime().UnixNano() || size != 1<<30 {
		t.Errorf("recorded %d, %d", at, size)
	}
}

func TestContent_withoutCreationTimeGetsTheCurrentTime(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.NoTime, driver.Snapshots.Size = true, -1
	o := s.Start(t, driver, s.Make("a")).Done("a")
	if at := time.Unix(0, *o.Status.CreationTime); time.Since(at) > time.Minute || o.Status.RestoreSize != nil {
		t.Errorf("taken at %v with %v bytes", at, o.Status.RestoreSize)
	}
}

// lie returns a driver's changed answers.
func lie(answer func(*csi.Snapshot)) func(*csidriver.Driver, func() bool) {
	return func(d *csidriver.Driver, lying func() bool) {
		d.Snapshots.Answer = func(s *csi.Snapshot) {
			if lying() {
				answer(s)
			}
		}
	}
}

func TestAnswer_invalidLeavesTheOutcomeUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		answer func(*csi.Snapshot)
		shown  string
	}{
		"no ID":          {func(s *csi.Snapshot) { s.SnapshotId = "" }, "without a snapshot_id"},
		"another volume": {func(s *csi.Snapshot) { s.SourceVolumeId = "vol-other" }, `"vol-other"`},
		"negative size":  {func(s *csi.Snapshot) { s.SizeBytes = -5 }, "-5 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite().InvalidAnswer(t, lie(row.answer), row.shown)
		})
	}
}

func TestAnswer_laterWithAnotherSnapshotIsRejected(t *testing.T) {
	suite().ChangedAnswer(t, lie(func(s *csi.Snapshot) { s.SnapshotId = "another" }))
}

func TestNext_ofMembersOfAGroup(t *testing.T) {
	s := suite()
	forgotten := func(o object) { o.Status = &snapshotv1.VolumeSnapshotContentStatus{} }
	s.NextSteps(t, map[string]contenttest.Row[object]{
		"new":                            {Object: s.Make("a", inGroup), Want: content.StepAwait},
		"recorded":                       {Object: s.Make("a", inGroup, as("s", false), ofGroup("g")), Want: content.StepInspect},
		"ready":                          {Object: s.Make("a", inGroup, as("s", true), ofGroup("g")), Want: content.StepNothing},
		"by status":                      {Object: s.Make("a", as("s", false), ofGroup("g")), Want: content.StepInspect},
		"deleted":                        {Object: s.Make("a", inGroup, as("s", true), ofGroup("g"), s.Deleted, s.UserGone), Want: content.StepRelease},
		"by status, deleted":             {Object: s.Make("a", as("s", true), ofGroup("g"), s.Deleted, s.UserGone), Want: content.StepRelease},
		"no member, cleared and deleted": {Object: s.Make("a", forgotten, s.Deleted, s.UserGone), Want: content.StepRelease},
	})
}
