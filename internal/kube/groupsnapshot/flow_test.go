package groupsnapshot

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestGroup_isCreatedRecordedAndDeleted(t *testing.T) {
	f := start(t, nil, group("a"))
	object := f.becomes("a", "ready", readyAndUnmarked)
	yes, at, size := true, csidriver.SnapshotTime().UnixNano(), int64(1<<30)
	info := func(volume string) groupv1.VolumeSnapshotInfo {
		return groupv1.VolumeSnapshotInfo{
			VolumeHandle: volume, SnapshotHandle: "id-groupsnapshot-uid-a-" + volume, CreationTime: &at, ReadyToUse: &yes, RestoreSize: &size,
		}
	}
	if diff := cmp.Diff([]groupv1.VolumeSnapshotInfo{info("vol-1"), info("vol-2")}, object.Status.VolumeSnapshotInfoList); diff != "" {
		t.Error(diff)
	}
	if handleOf(object) != groupID || !object.Status.CreationTime.Time.Equal(csidriver.SnapshotTime().Truncate(time.Second)) {
		t.Errorf("recorded %s of %v", handleOf(object), object.Status.CreationTime)
	}
	var writes []string
	for _, write := range f.Writes() {
		writes = append(writes, strings.TrimSpace(write.Verb+" "+write.Resource+" "+write.Subresource))
	}
	want := []string{"patch volumegroupsnapshotcontents", "patch volumegroupsnapshotcontents status", "patch volumegroupsnapshotcontents"}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Error(diff)
	}
	f.deleteByUser("a")
	f.vanishes("a")
	f.empty()
	if diff := cmp.Diff([]string{"CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"}, f.driver.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestGroup_requestHasParametersSecretsAndMetadata(t *testing.T) {
	keys := claim.GroupSnapshotKeys()
	var got *csi.CreateVolumeGroupSnapshotRequest
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateVolumeGroupSnapshotRequest); ok {
			got = create
		}
		return nil
	}
	f := prepare(t, driver, group("a", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		apiserver.Secret("vault", "s", map[string]string{"password": "x"}))
	with := options()
	with.ExtraMetadata, with.Naming = true, claim.Naming{Prefix: "together", UIDLength: 4}
	f.Run(f.Env, New(f.Env, with))
	f.becomes("a", "ready", readyAndUnmarked)
	want := map[string]string{
		"tier": "cold", "csi.storage.k8s.io/volumegroupsnapshot/name": "vgs-a", "csi.storage.k8s.io/volumegroupsnapshot/namespace": "ns",
		"csi.storage.k8s.io/volumegroupsnapshotcontent/name": "a",
	}
	if diff := cmp.Diff(want, got.GetParameters()); diff != "" {
		t.Error(diff)
	}
	if got.GetName() != "together-uida" || !cmp.Equal(got.GetSourceVolumeIds(), []string{"vol-1", "vol-2"}) || got.GetSecrets()["password"] != "x" {
		t.Errorf("asked for %s of %q with %d secrets", got.GetName(), got.GetSourceVolumeIds(), len(got.GetSecrets()))
	}
	if class, _ := f.Env.Set.GroupClasses().Get(className); len(class.Parameters) != 1 {
		t.Error("the class in the cache was changed")
	}
}

func TestGroup_hasMarkAndFinalizerBeforeTheCall(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, group("a", unfinalized))
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if o := f.get("a"); rpc == "CreateVolumeGroupSnapshot" && (!marked(o) || len(o.Finalizers) != 1) {
			t.Errorf("asked for with %+v", o.ObjectMeta)
		}
		return nil
	}
	f.Run(f.Env, New(f.Env, options()))
	f.becomes("a", "ready", readyAndUnmarked)
}

func TestGroup_isReadyWhenAllItsMembersAre(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 3
	driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) { g.ReadyToUse = true } // a driver that is ahead of its members
	f := prepare(t, driver, group("a"))
	f.Env.Retry.Start = time.Hour // an error would end the test
	f.Run(f.Env, New(f.Env, options()))
	object := f.becomes("a", "ready", readyAndUnmarked)
	for _, info := range object.Status.VolumeSnapshotInfoList {
		if !*info.ReadyToUse {
			t.Errorf("ready, but its member is %+v", info)
		}
	}
	want := []string{"CreateVolumeGroupSnapshot", "GetVolumeGroupSnapshot", "GetVolumeGroupSnapshot", "GetVolumeGroupSnapshot"}
	if diff := cmp.Diff(want, driver.Calls()); diff != "" {
		t.Error(diff)
	}
	if got := len(f.Writes()); got != 4 { // mark, status, unmark, ready
		t.Errorf("%d writes; an unchanged answer was written", got)
	}
}

func TestGroup_membersAreRefreshedOneByOne(t *testing.T) {
	driver := csidriver.New(driverName)
	var all atomic.Bool
	driver.Snapshots.Answer = func(s *csi.Snapshot) { s.ReadyToUse = s.GetSourceVolumeId() == "vol-2" || all.Load() }
	f := start(t, driver, group("a"))
	half := f.becomes("a", "taken", func(o *groupv1.VolumeGroupSnapshotContent) bool { return handleOf(o) != "" && !marked(o) })
	if infos := half.Status.VolumeSnapshotInfoList; ready(half) || *infos[0].ReadyToUse || !*infos[1].ReadyToUse {
		t.Errorf("%+v", half.Status)
	}
	all.Store(true)
	whole := f.becomes("a", "ready", readyAndUnmarked)
	if !*whole.Status.VolumeSnapshotInfoList[0].ReadyToUse {
		t.Error("the member's readiness was not refreshed")
	}
}

func TestGroup_membersKeepTheirOrderAndRecordedFields(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 2
	var answers atomic.Int64
	driver.Groups.Answer = func(g *csi.VolumeGroupSnapshot) { // each time other sizes, and from the second in another order
		if answers.Add(1) > 1 {
			slices.Reverse(g.GetSnapshots())
		}
		for _, s := range g.GetSnapshots() {
			s.SizeBytes = answers.Load() * 1000
		}
	}
	f := start(t, driver, group("a"))
	infos := f.becomes("a", "ready", readyAndUnmarked).Status.VolumeSnapshotInfoList
	if infos[0].VolumeHandle != "vol-1" || infos[1].VolumeHandle != "vol-2" {
		t.Errorf("members of %s, %s", infos[0].VolumeHandle, infos[1].VolumeHandle)
	}
	if *infos[0].RestoreSize != 1000 || *infos[1].RestoreSize != 1000 {
		t.Errorf("sizes that snapshot-controller may have copied became %d, %d", *infos[0].RestoreSize, *infos[1].RestoreSize)
	}
}

func TestGroup_withoutCreationTimeGetsTheCurrentTime(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.NoTime, driver.Snapshots.Size = true, -1
	f := start(t, driver, group("a"))
	object := f.becomes("a", "ready", readyAndUnmarked)
	if time.Since(object.Status.CreationTime.Time) > time.Minute {
		t.Errorf("taken at %v", object.Status.CreationTime)
	}
	for _, info := range object.Status.VolumeSnapshotInfoList {
		if time.Since(time.Unix(0, *info.CreationTime)) > time.Minute || info.RestoreSize != nil {
			t.Errorf("%+v", info)
		}
	}
}

func TestGroup_errorsAreReportedAndRetried(t *testing.T) {
	for _, row := range []struct {
		code  codes.Code
		final bool
	}{
		{codes.Canceled, false}, {codes.DeadlineExceeded, false}, {codes.Unavailable, false}, {codes.Aborted, false}, {codes.ResourceExhausted, false},
		{codes.InvalidArgument, true}, {codes.NotFound, true}, {codes.FailedPrecondition, true}, {codes.Internal, true}, {codes.AlreadyExists, true},
	} {
		t.Run(row.code.String(), func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(driverName)
			driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc == "CreateVolumeGroupSnapshot" && driver.Count(rpc) < 4 {
					return csidriver.Fail(row.code, "refused for a test")
				}
				return nil
			}
			f := prepare(t, driver, group("a"))
			f.Env.Retry.Start, f.Env.Retry.Max = 100*time.Millisecond, 100*time.Millisecond
			f.Run(f.Env, New(f.Env, options()))
			f.becomes("a", "failed and resolved by its code", func(o *groupv1.VolumeGroupSnapshotContent) bool {
				return fails("refused for a test")(o) && marked(o) != row.final
			})
			f.happens("Warning GroupSnapshotCreationFailed a", "Failed to create group snapshot", row.code.String())
			if object := f.becomes("a", "ready", readyAndUnmarked); (kind{}).View(object).Error != "" {
				t.Errorf("the error stays: %s", (kind{}).View(object).Error)
			}
			if got := len(f.Events()); got != 1 {
				t.Errorf("%d events for one and the same error: %q", got, f.Events())
			}
		})
	}
}

func TestGroup_deletedDuringTheCallLeavesNothing(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, group("a"))
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolumeGroupSnapshot" && driver.Count(rpc) == 1 {
			f.deleteByUser("a")
			return csidriver.Fail(codes.DeadlineExceeded, "too slow")
		}
		return nil
	}
	f.Run(f.Env, New(f.Env, options()))
	f.vanishes("a")
	f.empty()
	if diff := cmp.Diff([]string{"CreateVolumeGroupSnapshot", "CreateVolumeGroupSnapshot", "DeleteVolumeGroupSnapshot"}, driver.Calls()); diff != "" {
		t.Error(diff)
	}
}

func TestGroup_deletedAfterAFinalErrorMakesNoCall(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateVolumeGroupSnapshot" {
			return csidriver.Fail(codes.InvalidArgument, "never")
		}
		return nil
	}
	f := start(t, driver, group("a"))
	f.becomes("a", "failed", fails("never"))
	f.deleteByUser("a")
	f.vanishes("a")
	if got := driver.Count("DeleteVolumeGroupSnapshot"); got != 0 {
		t.Errorf("it was called %d times", got)
	}
}

func TestGroup_retainedKeepsItsSnapshots(t *testing.T) {
	f := start(t, nil, group("a", retain))
	f.becomes("a", "ready", readyAndUnmarked)
	f.deleteByUser("a")
	f.vanishes("a")
	if groups, snapshots := f.driver.GroupsLeft(), f.driver.SnapshotsLeft(); len(groups) != 1 || len(snapshots) != 2 {
		t.Errorf("still at the driver: %q, %q", groups, snapshots)
	}
}

func TestGroup_deletionNamesAllMembersAndIsRetried(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, rpc string, request any) error {
		if asked, ok := request.(*csi.DeleteVolumeGroupSnapshotRequest); ok && len(asked.GetSnapshotIds()) != 2 {
			t.Errorf("the members to be deleted are %q", asked.GetSnapshotIds())
		}
		if rpc == "DeleteVolumeGroupSnapshot" && driver.Count(rpc) < 3 {
			return csidriver.Fail(codes.FailedPrecondition, "a clone still reads it")
		}
		return nil
	}
	f := start(t, driver, group("a"))
	f.becomes("a", "ready", readyAndUnmarked)
	f.deleteByUser("a")
	f.vanishes("a")
	f.empty()
	f.happens("Warning GroupSnapshotDeleteError a", "a clone still reads it")
}

// A group snapshot that another content names is not deleted.
func TestGroup_deletionWaitsForAnotherContentOfTheGroupSnapshot(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1", "vol-2")
	f := start(t, driver, group("a", existing(id, members...)), group("b", existing(id, members...), retain))
	f.becomes("a", "ready", ready)
	f.becomes("b", "ready", ready)
	f.deleteByUser("a")
	f.happens("Warning GroupSnapshotDeleteError a", `VolumeGroupSnapshotContent "b" names the same group snapshot`)
	if got := driver.Count("DeleteVolumeGroupSnapshot"); got != 0 {
		t.Errorf("%d calls to delete a group snapshot that another content names", got)
	}
	f.deleteByUser("b")
	f.vanishes("b")
	f.vanishes("a")
	f.empty()
}

func TestGroup_readsTheDeletionPolicyBeforeTheDeletion(t *testing.T) {
	driver := csidriver.New(driverName)
	id, members := driver.AddGroup("old", "vol-1", "vol-2")
	created := takenAs(id, true, members...)
	f := prepare(t, driver, group("a", userGone, deleted, created))
	var changed atomic.Bool
	f.React("get", "volumegroupsnapshotcontents", func(apiserver.Request) error { // the controller's last look
		if changed.CompareAndSwap(false, true) {
			f.Put(group("a", retain, userGone, deleted, created))
		}
		return nil
	})
	f.Run(f.Env, New(f.Env, options()))
	f.vanishes("a")
	if left := driver.GroupsLeft(); !changed.Load() || len(left) != 1 {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestGroup_missingSecretBlocksItsDeletion(t *testing.T) {
	keys := claim.GroupSnapshotKeys()
	f := start(t, nil, group("a", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		apiserver.Secret("vault", "s", nil))
	f.becomes("a", "ready", readyAndUnmarked)
	f.Delete(apiserver.Secret("vault", "s", nil))
	f.deleteByUser("a")
	f.happens("Warning GroupSnapshotDeleteError a", "vault/s", claim.DeleteWithoutSecretAnnotation)
	f.stays("a")
	object := f.get("a")
	annotated(claim.DeleteWithoutSecretAnnotation, "true")(object)
	f.Put(object)
	f.vanishes("a")
	f.empty()
}

func TestGroup_missingObjectsAreReportedAndAwaited(t *testing.T) {
	keys := claim.GroupSnapshotKeys()
	f := start(t, nil,
		group("secretless", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		group("half", annotated(keys.SecretName, "s")),
		group("classless", classless),
		group("lost", classed("elsewhere")),
		group("unbound", unbound),
	)
	f.becomes("secretless", "failed", fails("vault/s"))
	f.becomes("half", "failed", fails(keys.SecretNamespace))
	f.becomes("classless", "failed", fails("no VolumeGroupSnapshotClass"))
	f.becomes("lost", "failed", fails(`VolumeGroupSnapshotClass "elsewhere" does not exist`))
	f.becomes("unbound", "failed", fails("no uid"))
	if calls := f.driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
	f.Add(apiserver.Secret("vault", "s", nil), class("elsewhere", nil))
	f.becomes("secretless", "ready", readyAndUnmarked)
	f.becomes("lost", "ready", readyAndUnmarked)
}

func TestGroup_ofAnotherDriverIsIgnored(t *testing.T) {
	other := class("other", nil)
	other.Driver = "other.example.org"
	f := start(t, nil, other, group("foreign-class", classed("other")),
		group("foreign", func(o *groupv1.VolumeGroupSnapshotContent) { o.Spec.Driver = "other.example.org" }),
		group("empty", of()),
		group("mine"))
	f.becomes("mine", "ready", readyAndUnmarked)
	for _, name := range []string{"foreign", "foreign-class", "empty"} {
		if o := f.get(name); o.Status != nil || marked(o) {
			t.Errorf("%s was touched", name)
		}
	}
}

func TestDriver_withoutGroupsIsReported(t *testing.T) {
	for name, lacking := range map[string]func(*csidriver.Driver){
		"no service":    func(d *csidriver.Driver) { d.Plugin = d.Plugin[:1] },
		"no capability": func(d *csidriver.Driver) { d.Groups.Offered = nil },
	} {
		t.Run(name, func(t *testing.T) {
			driver := csidriver.New(driverName)
			lacking(driver)
			f := start(t, driver, group("a"))
			if o := f.becomes("a", "failed", fails("CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT")); marked(o) {
				t.Error("marked, though no driver can be called")
			}
			f.deleteByUser("a")
			f.vanishes("a")
		})
	}
}

func TestCRDs_installedLaterAreServed(t *testing.T) {
	f := prepare(t, nil)
	f.Unserve("groupsnapshot.storage.k8s.io", true)
	f.Env.Set.PollServed(10 * time.Millisecond)
	f.Run(f.Env, New(f.Env, options()))
	f.Add(group("a"))
	time.Sleep(50 * time.Millisecond)
	f.Unserve("groupsnapshot.storage.k8s.io", false)
	f.becomes("a", "ready", readyAndUnmarked)
}
