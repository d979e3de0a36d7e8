package groupsnapshot

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestStatic_isReadAndDeletedAsAWhole(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 2
	id, members := driver.AddGroup("old", "vol-1", "vol-2")
	f := start(t, driver, group("a", existing(id, members...)))
	object := f.becomes("a", "ready", ready)
	if handleOf(object) != id || !object.Status.CreationTime.Time.Equal(csidriver.SnapshotTime().Truncate(1e9)) {
		t.Errorf("%+v", object.Status)
	}
	var known []string
	for _, info := range object.Status.VolumeSnapshotInfoList {
		known = append(known, info.SnapshotHandle)
	}
	if diff := cmp.Diff(members, known); diff != "" {
		t.Error(diff)
	}
	if got := driver.Count("GetVolumeGroupSnapshot"); got != 3 || driver.Count("CreateVolumeGroupSnapshot") != 0 {
		t.Errorf("calls: %q", driver.Calls())
	}
	f.deleteByUser("a")
	f.vanishes("a")
	f.empty()
}

func TestStatic_absenceIsReportedAndPolled(t *testing.T) {
	f := start(t, nil, group("a", existing("id-late", "id-late-vol-1")))
	f.becomes("a", "failed", fails("NotFound"))
	f.happens("Warning GroupSnapshotContentCheckandUpdateFailed a", "Failed to check and update group snapshot content", "id-late")
	f.driver.AddGroup("late", "vol-1")
	if object := f.becomes("a", "ready", ready); (kind{}).View(object).Error != "" {
		t.Errorf("the error stays: %s", (kind{}).View(object).Error)
	}
}

func TestStatic_withOtherMembersIsRejected(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1", "vol-2")
	driver.Before = func(_ context.Context, _ string, request any) error {
		if asked, ok := request.(*csi.GetVolumeGroupSnapshotRequest); ok {
			asked.SnapshotIds = members // a driver that takes no notice of them
		}
		return nil
	}
	f := start(t, driver, group("a", existing(id, members[0], "id-of-another")))
	f.becomes("a", "failed", fails("id-of-another"))
}

func TestStatic_readsWithTheSecretOfItsClass(t *testing.T) {
	var secrets map[string]string
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, _ string, request any) error {
		if asked, ok := request.(*csi.GetVolumeGroupSnapshotRequest); ok {
			secrets = asked.GetSecrets()
		}
		return nil
	}
	id, members := driver.AddGroup("old", "vol-1")
	f := start(t, driver, class("asking", map[string]string{
		claim.ReservedPrefix + "group-snapshotter-get-secret-name":      "for-${volumegroupsnapshot.name}",
		claim.ReservedPrefix + "group-snapshotter-get-secret-namespace": "vault",
	}), group("a", existing(id, members...), classed("asking")))
	f.becomes("a", "failed", fails("vault/for-vgs-a"))
	f.Add(apiserver.Secret("vault", "for-vgs-a", map[string]string{"k": "v"}))
	f.becomes("a", "ready", ready)
	if secrets["k"] != "v" {
		t.Error("asked without the secret")
	}
}

// Contents of API version v1beta1 have lost their list of members.
func TestStatic_withoutKnownMembersTakesTheDriversAnswer(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1")
	driver.Before = func(_ context.Context, _ string, request any) error {
		switch asked := request.(type) {
		case *csi.GetVolumeGroupSnapshotRequest:
			asked.SnapshotIds = members
		}
		return nil
	}
	f := start(t, driver, group("a", of("vol-1"), takenAs(id, false)))
	object := f.becomes("a", "ready", ready)
	if infos := object.Status.VolumeSnapshotInfoList; len(infos) != 1 || infos[0].SnapshotHandle != members[0] {
		t.Errorf("%+v", infos)
	}
}

func TestStatic_unboundIsDeletedWithoutAUser(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1")
	f := start(t, driver, group("a", existing(id, members...), unbound))
	f.becomes("a", "ready", func(o *groupv1.VolumeGroupSnapshotContent) bool { return ready(o) })
	f.Delete(f.get("a"))
	f.vanishes("a")
	f.empty()
}
