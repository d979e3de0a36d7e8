package snapshot

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func only(kinds ...csi.ControllerServiceCapability_RPC_Type) *csidriver.Driver {
	driver := csidriver.New(contenttest.Driver)
	driver.Controller = append(kinds, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	return driver
}

func TestStatic_isRead(t *testing.T) {
	const list, get = csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csi.ControllerServiceCapability_RPC_GET_SNAPSHOT
	for name, row := range map[string]struct {
		kinds []csi.ControllerServiceCapability_RPC_Type
		call  string
	}{
		"listed": {[]csi.ControllerServiceCapability_RPC_Type{list, get}, "ListSnapshots"},
		"got":    {[]csi.ControllerServiceCapability_RPC_Type{get}, "GetSnapshot"},
	} {
		s, driver := suite(), only(row.kinds...)
		driver.Snapshots.UnreadyAnswers, driver.Snapshots.Size = 2, 4096
		old := s.Add(driver, "old")
		o := s.Start(t, driver, s.Static("a", old, s.Retain)).Done("a")
		if handleOf(o) != old.ID || *o.Status.RestoreSize != 4096 || *o.Status.CreationTime != csidriver.SnapshotTime().UnixNano() {
			t.Errorf("%s: %+v", name, o.Status)
		}
		if got := driver.Count(row.call); got != 3 {
			t.Errorf("%s: %d calls of %s; want 3", name, got, row.call)
		}
	}
}

func TestStatic_isAcceptedWithoutListSnapshots(t *testing.T) {
	s, driver := suite(), only()
	o := s.Start(t, driver, s.Static("a", contenttest.Snapshot{ID: "handle"})).Done("a")
	if handleOf(o) != "handle" || o.Status.RestoreSize != nil || time.Since(s.View(o).Taken) > time.Minute {
		t.Errorf("%+v", o.Status)
	}
	if calls := driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestStatic_isFoundInAListThatIsNotFiltered(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	for _, name := range []string{"a", "b", "c"} {
		s.Add(driver, name)
	}
	driver.Before = func(_ context.Context, _ string, request any) error {
		if list, ok := request.(*csi.ListSnapshotsRequest); ok {
			list.SnapshotId, list.MaxEntries = "", 1
		}
		return nil
	}
	o := s.Start(t, driver, s.Static("a", contenttest.Snapshot{ID: "id-b"})).Done("a")
	if handleOf(o) != "id-b" {
		t.Errorf("found %s", handleOf(o))
	}
}

func TestStatic_failureOfTheDriverIsReported(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ListSnapshots" && driver.Count(rpc) < 3 {
			return csidriver.Fail(codes.Internal, "no index")
		}
		return nil
	}
	f := s.Start(t, driver, s.Static("a", s.Add(driver, "old")))
	f.Happens("Warning SnapshotContentCheckandUpdateFailed a", "no index")
	f.Done("a")
}

func TestStatic_ofAGroupIsRecordedAsAMember(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	group, members := driver.AddGroup("g", "vol-a")
	f := s.Start(t, driver, s.Static("a", contenttest.Snapshot{ID: members[0]}))
	if got := f.Done("a").Status.VolumeGroupSnapshotHandle; got == nil || *got != group {
		t.Errorf("its group is %v", got)
	}
	f.DeleteByUser("a")
	f.Vanishes("a")
	if driver.Count("DeleteSnapshot") != 0 {
		t.Error("a member was deleted without its group")
	}
}

func TestMember_waitsForItsHandleAndIsRead(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.UnreadyAnswers = 1
	group, members := driver.AddGroup("g", "vol-a")
	f := s.Start(t, driver, s.Make("a", inGroup))
	f.Untouched("a") // until snapshot-controller writes the handle
	f.Put(s.Make("a", inGroup, as(members[0], false), ofGroup(group)))
	f.Done("a")
	if got := driver.Count("ListSnapshots"); got != 2 || driver.Count("CreateSnapshot") != 0 {
		t.Errorf("calls: %q", driver.Calls())
	}
}

// TestMember_withoutListSnapshotsIsLeftToItsGroup: only the driver can report that it is
// ready.
func TestMember_withoutListSnapshotsIsLeftToItsGroup(t *testing.T) {
	s := suite()
	s.Start(t, only(), s.Make("a", inGroup, as("m", false), ofGroup("g"))).Untouched("a")
}

func TestMember_deletedLosesItsFinalizerOnly(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	group, members := driver.AddGroup("g", "vol-a")
	f := s.Start(t, driver, s.Make("a", inGroup, as(members[0], true), ofGroup(group)))
	f.DeleteByUser("a")
	f.Vanishes("a")
	if calls := driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}
