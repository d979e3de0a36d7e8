package snapshot

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func only(kinds ...csi.ControllerServiceCapability_RPC_Type) *csidriver.Driver {
	driver := csidriver.New(driverName)
	driver.Controller = append(kinds, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
	return driver
}

func TestStatic_isRead(t *testing.T) {
	for name, row := range map[string]struct {
		kinds []csi.ControllerServiceCapability_RPC_Type
		call  string
	}{
		"listed": {[]csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, csi.ControllerServiceCapability_RPC_GET_SNAPSHOT}, "ListSnapshots"},
		"got":    {[]csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_GET_SNAPSHOT}, "GetSnapshot"},
	} {
		driver := only(row.kinds...)
		driver.Snapshots.UnreadyAnswers, driver.Snapshots.Size = 2, 4096
		id := driver.AddSnapshot("old", "vol")
		f := start(t, driver, staticFor("a", id, retain))
		object := f.becomes("a", "ready", ready)
		if handleOf(object) != id || *object.Status.RestoreSize != 4096 || *object.Status.CreationTime != csidriver.SnapshotTime().UnixNano() {
			t.Errorf("%s: %+v", name, object.Status)
		}
		if got := driver.Count(row.call); got != 3 {
			t.Errorf("%s: %d calls of %s; want 3", name, got, row.call)
		}
	}
}

func TestStatic_isAcceptedWithoutListSnapshots(t *testing.T) {
	driver := only()
	f := start(t, driver, staticFor("a", "handle"))
	object := f.becomes("a", "ready", ready)
	if handleOf(object) != "handle" || object.Status.RestoreSize != nil || time.Since((kind{}).View(object).Taken) > time.Minute {
		t.Errorf("%+v", object.Status)
	}
	if calls := driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestStatic_absenceIsReportedAndPolled(t *testing.T) {
	f := start(t, nil, staticFor("a", "id-late"))
	f.becomes("a", "failed", fails("no such snapshot"))
	f.happens("Warning SnapshotContentCheckandUpdateFailed a", "Failed to check and update snapshot content", "id-late")
	f.driver.AddSnapshot("late", "vol")
	if object := f.becomes("a", "ready", ready); errorOf(object) != "" {
		t.Errorf("the error stays: %s", errorOf(object))
	}
}

func TestStatic_isFoundInAListThatIsNotFiltered(t *testing.T) {
	driver := csidriver.New(driverName)
	for _, name := range []string{"a", "b", "c"} {
		driver.AddSnapshot(name, "vol")
	}
	driver.Before = func(_ context.Context, _ string, request any) error {
		if list, ok := request.(*csi.ListSnapshotsRequest); ok {
			list.SnapshotId, list.MaxEntries = "", 1
		}
		return nil
	}
	f := start(t, driver, staticFor("a", "id-b"))
	if object := f.becomes("a", "ready", ready); handleOf(object) != "id-b" {
		t.Errorf("found %s", handleOf(object))
	}
}

func TestStatic_listsWithTheSecretOfItsClass(t *testing.T) {
	var secrets map[string]string
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, _ string, request any) error {
		if list, ok := request.(*csi.ListSnapshotsRequest); ok {
			secrets = list.GetSecrets()
		}
		return nil
	}
	id := driver.AddSnapshot("old", "vol")
	listing := class(map[string]string{
		claim.ReservedPrefix + "snapshotter-list-secret-name":      "for-${volumesnapshotcontent.name}",
		claim.ReservedPrefix + "snapshotter-list-secret-namespace": "vault",
	})
	listing.Name = "listing"
	f := start(t, driver, listing, staticFor("a", id, func(o *snapshotv1.VolumeSnapshotContent) { o.Spec.VolumeSnapshotClassName = &listing.Name }))
	f.becomes("a", "failed", fails("vault/for-a"))
	f.Add(apiserver.Secret("vault", "for-a", map[string]string{"k": "v"}))
	f.becomes("a", "ready", ready)
	if secrets["k"] != "v" {
		t.Error("listed without the secret")
	}
}

func TestMember_waitsForItsHandleAndIsRead(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 1
	group, members := driver.AddGroup("g", "vol-a")
	f := start(t, driver, dynamic("a", inGroup))
	f.Never(50*time.Millisecond, func() error {
		if len(driver.Calls()) > 0 || f.get("a").Status != nil {
			return errors.New("it was touched before snapshot-controller filled it in")
		}
		return nil
	})
	f.Put(dynamic("a", inGroup, takenAs(members[0], false), ofGroup(group)))
	f.becomes("a", "ready", ready)
	if got := driver.Count("ListSnapshots"); got != 2 || driver.Count("CreateSnapshot") != 0 {
		t.Errorf("calls: %q", driver.Calls())
	}
}

func TestMember_withoutListSnapshotsIsLeftToItsGroup(t *testing.T) {
	driver := only()
	f := start(t, driver, dynamic("a", inGroup, takenAs("m", false), ofGroup("g")))
	f.Never(50*time.Millisecond, func() error {
		if ready(f.get("a")) {
			return errors.New("it is ready before the driver reported so")
		}
		return nil
	})
}

func TestMember_deletedLosesItsFinalizerOnly(t *testing.T) {
	driver := csidriver.New(driverName)
	group, members := driver.AddGroup("g", "vol-a")
	f := start(t, driver, dynamic("a", inGroup, takenAs(members[0], true), ofGroup(group)))
	f.deleteByUser("a")
	f.vanishes("a")
	if calls := driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
}

func TestStatic_ofAGroupIsRecordedAsAMember(t *testing.T) {
	driver := csidriver.New(driverName)
	group, members := driver.AddGroup("g", "vol-a")
	f := start(t, driver, staticFor("a", members[0]))
	object := f.becomes("a", "ready", ready)
	if got := object.Status.VolumeGroupSnapshotHandle; got == nil || *got != group {
		t.Errorf("its group is %v", got)
	}
	f.deleteByUser("a")
	f.vanishes("a")
	if driver.Count("DeleteSnapshot") != 0 {
		t.Error("a member was deleted without its group")
	}
}

func TestStatic_failureOfTheDriverIsReported(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol")
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "ListSnapshots" && driver.Count(rpc) < 3 {
			return csidriver.Fail(codes.Internal, "no index")
		}
		return nil
	}
	f := start(t, driver, staticFor("a", id))
	f.happens("Warning SnapshotContentCheckandUpdateFailed a", "no index")
	f.becomes("a", "ready", ready)
}
