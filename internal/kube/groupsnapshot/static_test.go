package groupsnapshot

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content/contenttest"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestStatic_isRead(t *testing.T) {
	s, driver := suite(), csidriver.New(contenttest.Driver)
	driver.Snapshots.UnreadyAnswers = 2
	old := s.Add(driver, "old")
	o := s.Start(t, driver, s.Static("a", old)).Done("a")
	if handleOf(o) != old.ID || !o.Status.CreationTime.Time.Equal(csidriver.SnapshotTime().Truncate(1e9)) || !slices.Equal(members(o), old.Members) {
		t.Errorf("%+v", o.Status)
	}
	if got := driver.Count("GetVolumeGroupSnapshot"); got != 3 || driver.Count("CreateVolumeGroupSnapshot") != 0 {
		t.Errorf("calls: %q", driver.Calls())
	}
}

// careless returns a driver with a group whose GetVolumeGroupSnapshot ignores the members
// in the request.
func careless() (driver *csidriver.Driver, old contenttest.Snapshot) {
	driver = csidriver.New(contenttest.Driver)
	old = suite().Add(driver, "old")
	driver.Before = func(_ context.Context, _ string, request any) error {
		if get, ok := request.(*csi.GetVolumeGroupSnapshotRequest); ok {
			get.SnapshotIds = old.Members
		}
		return nil
	}
	return driver, old
}

func TestStatic_withOtherMembersIsRejected(t *testing.T) {
	driver, old := careless()
	f := suite().Start(t, driver, suite().Static("a", contenttest.Snapshot{ID: old.ID, Members: []string{old.Members[0], "id-of-another"}}))
	f.Becomes("a", "failed", f.Fails("id-of-another"))
}

// Contents of API version v1beta1 have lost their list of members.
func TestContent_withoutKnownMembersRecordsThoseOfTheAnswer(t *testing.T) {
	driver, old := careless()
	o := suite().Start(t, driver, suite().Make("a", suite().Recorded(contenttest.Snapshot{ID: old.ID}, false))).Done("a")
	if !slices.Equal(members(o), old.Members) {
		t.Errorf("%+v", o.Status)
	}
}
