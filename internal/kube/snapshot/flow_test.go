package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestContent_isCreatedRecordedAndDeleted(t *testing.T) {
	f := start(t, nil, dynamic("a"))
	object := f.becomes("a", "ready", readyAndUnmarked)
	if handle, at, size := handleOf(object), *object.Status.CreationTime, *object.Status.RestoreSize; handle != "id-snapshot-uid-a" ||
		at != csidriver.SnapshotTime().UnixNano() || size != 1<<30 {
		t.Errorf("recorded %s, %d, %d", handle, at, size)
	}
	var writes []string
	for _, write := range f.Writes() {
		writes = append(writes, strings.TrimSpace(write.Verb+" "+write.Resource+" "+write.Subresource))
	}
	want := []string{"patch volumesnapshotcontents", "patch volumesnapshotcontents status", "patch volumesnapshotcontents"}
	if diff := cmp.Diff(want, writes); diff != "" {
		t.Error(diff)
	}
	f.deleteByUser("a")
	f.vanishes("a")
	if left := f.driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
	if got := f.driver.Count("CreateSnapshot"); got != 1 {
		t.Errorf("CreateSnapshot was called %d times", got)
	}
}

func TestContent_requestHasParametersSecretsAndMetadata(t *testing.T) {
	keys := claim.VolumeSnapshotKeys()
	var got *csi.CreateSnapshotRequest
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, _ string, request any) error {
		if create, ok := request.(*csi.CreateSnapshotRequest); ok {
			got = create
		}
		return nil
	}
	f := prepare(t, driver, dynamic("a", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		apiserver.Secret("vault", "s", map[string]string{"password": "x"}))
	f.Run(f.Env, New(f.Env, Options{ExtraMetadata: true, Naming: claim.Naming{Prefix: "snap", UIDLength: 4}, Poll: fastPoll()}))
	f.becomes("a", "ready", readyAndUnmarked)
	want := map[string]string{
		"tier": "cold", "csi.storage.k8s.io/volumesnapshot/name": "vs-a", "csi.storage.k8s.io/volumesnapshot/namespace": "ns",
		"csi.storage.k8s.io/volumesnapshotcontent/name": "a",
	}
	if diff := cmp.Diff(want, got.GetParameters()); diff != "" {
		t.Error(diff)
	}
	if got.GetName() != "snap-uida" || got.GetSourceVolumeId() != "vol-a" || got.GetSecrets()["password"] != "x" {
		t.Errorf("asked for %s of %s with %d secrets", got.GetName(), got.GetSourceVolumeId(), len(got.GetSecrets()))
	}
	if len(f.classParameters()) != 1 {
		t.Error("the class in the cache was changed")
	}
}

func (f fixture) classParameters() map[string]string {
	class, _ := f.Env.Set.SnapshotClasses().Get(className)
	return class.Parameters
}

func TestContent_hasMarkAndFinalizerBeforeTheCall(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, dynamic("a", unfinalized))
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if o := f.get("a"); rpc == "CreateSnapshot" && (!marked(o) || !slices.Equal(o.Finalizers, []string{traits().Keys.Finalizer})) {
			t.Errorf("asked for with %+v", o.ObjectMeta)
		}
		return nil
	}
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.becomes("a", "ready", readyAndUnmarked)
}

func TestContent_readinessIsPolledApartFromErrors(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.UnreadyAnswers = 3
	f := prepare(t, driver, dynamic("a"))
	f.Env.Retry.Start = time.Hour // an error would end the test
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.becomes("a", "ready", readyAndUnmarked)
	if got := driver.Count("CreateSnapshot"); got != 4 {
		t.Errorf("CreateSnapshot was called %d times; want 4", got)
	}
	if got := len(f.Writes()); got != 4 { // mark, status, unmark, ready
		t.Errorf("%d writes; an unchanged answer was written", got)
	}
}

func TestContent_withoutCreationTimeGetsTheCurrentTime(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Snapshots.NoTime, driver.Snapshots.Size = true, -1
	f := start(t, driver, dynamic("a"))
	object := f.becomes("a", "ready", readyAndUnmarked)
	if at := time.Unix(0, *object.Status.CreationTime); time.Since(at) > time.Minute || object.Status.RestoreSize != nil {
		t.Errorf("taken at %v with %v bytes", at, object.Status.RestoreSize)
	}
}

func TestContent_errorsAreReportedAndRetried(t *testing.T) {
	for _, row := range []struct {
		code  codes.Code
		final bool
	}{
		{codes.Canceled, false}, {codes.DeadlineExceeded, false}, {codes.Unavailable, false}, {codes.Aborted, false}, {codes.ResourceExhausted, false},
		{codes.InvalidArgument, true}, {codes.OutOfRange, true}, {codes.NotFound, true}, {codes.FailedPrecondition, true},
		{codes.Internal, true}, {codes.Unknown, true}, {codes.AlreadyExists, true}, {codes.PermissionDenied, true}, {codes.Unimplemented, true},
	} {
		t.Run(row.code.String(), func(t *testing.T) {
			t.Parallel()
			driver := csidriver.New(driverName)
			driver.Before = func(_ context.Context, rpc string, _ any) error {
				if rpc == "CreateSnapshot" && driver.Count(rpc) < 4 {
					return csidriver.Fail(row.code, "refused for a test")
				}
				return nil
			}
			f := prepare(t, driver, dynamic("a"))
			f.Env.Retry.Start, f.Env.Retry.Max = 100*time.Millisecond, 100*time.Millisecond
			f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
			f.becomes("a", "failed and resolved by its code", func(o *snapshotv1.VolumeSnapshotContent) bool {
				return fails("refused for a test")(o) && marked(o) != row.final
			})
			f.happens("Warning SnapshotCreationFailed a", "Failed to create snapshot", row.code.String())
			if object := f.becomes("a", "ready", readyAndUnmarked); errorOf(object) != "" {
				t.Errorf("the error stays: %s", errorOf(object))
			}
			if got := len(f.Events()); got != 1 {
				t.Errorf("%d events for one and the same error: %q", got, f.Events())
			}
		})
	}
}

func TestContent_deletedDuringTheCallLeavesNothing(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver, dynamic("a"))
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateSnapshot" && driver.Count(rpc) == 1 {
			f.deleteByUser("a")
			return csidriver.Fail(codes.DeadlineExceeded, "too slow")
		}
		return nil
	}
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.vanishes("a")
	if left, calls := driver.SnapshotsLeft(), driver.Calls(); left != nil || cmp.Diff(calls, []string{"CreateSnapshot", "CreateSnapshot", "DeleteSnapshot"}) != "" {
		t.Errorf("left %q after %q", left, calls)
	}
}

func TestContent_deletedAfterAFinalErrorMakesNoCall(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateSnapshot" {
			return csidriver.Fail(codes.InvalidArgument, "never")
		}
		return nil
	}
	f := start(t, driver, dynamic("a"))
	f.becomes("a", "failed", fails("never"))
	f.deleteByUser("a")
	f.vanishes("a")
	if got := driver.Count("DeleteSnapshot"); got != 0 {
		t.Errorf("DeleteSnapshot was called %d times", got)
	}
}

func TestContent_retainedKeepsItsSnapshot(t *testing.T) {
	f := start(t, nil, dynamic("a", retain))
	f.becomes("a", "ready", readyAndUnmarked)
	f.deleteByUser("a")
	f.vanishes("a")
	if left := f.driver.SnapshotsLeft(); len(left) != 1 {
		t.Errorf("still at the driver: %q", left)
	}
}

// A snapshot that another content names is not deleted, as on the host.
func TestContent_deletionWaitsForAnotherContentOfTheSnapshot(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol")
	f := start(t, driver, staticFor("a", id), staticFor("b", id, retain))
	f.becomes("a", "ready", ready)
	f.becomes("b", "ready", ready)
	f.deleteByUser("a")
	f.happens("Warning SnapshotDeleteError a", `VolumeSnapshotContent "b" names the same snapshot`)
	if got := driver.Count("DeleteSnapshot"); got != 0 {
		t.Errorf("%d calls to delete a snapshot that another content names", got)
	}
	f.deleteByUser("b")
	f.vanishes("b")
	f.vanishes("a")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

// The answer to an own write can show a deletion before the watch does. The cache may
// lack another content then, which was made before the deletion.
func TestContent_deletionWaitsForTheCacheOfContents(t *testing.T) {
	driver := csidriver.New(driverName)
	f := prepare(t, driver)
	var down atomic.Bool
	driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == "CreateSnapshot" && down.CompareAndSwap(false, true) {
			f.BreakWatches()
			f.Put(staticFor("b", "id-snapshot-uid-a", retain))
			f.deleteByUser("a")
		}
		return nil
	}
	f.React("watch", "volumesnapshotcontents", func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.Add(dynamic("a"))
	f.becomes("a", "recorded and deleted", func(o *snapshotv1.VolumeSnapshotContent) bool {
		return handleOf(o) != "" && !marked(o) && o.DeletionTimestamp != nil
	})
	f.Never(100*time.Millisecond, func() error {
		if n := driver.Count("DeleteSnapshot"); n > 0 {
			return fmt.Errorf("%d calls to delete a snapshot that another content names", n)
		}
		return nil
	})
	down.Store(false)
	f.happens("Warning SnapshotDeleteError a", `VolumeSnapshotContent "b" names the same snapshot`)
}

// Two contents of one snapshot that are both deleted with it do not wait for each other.
func TestContent_deletionOfBothContentsOfASnapshot(t *testing.T) {
	driver := csidriver.New(driverName)
	id := driver.AddSnapshot("old", "vol")
	f := start(t, driver, staticFor("a", id, takenAs(id, true), deleted, userGone), staticFor("b", id, takenAs(id, true), deleted, userGone))
	f.vanishes("a")
	f.vanishes("b")
	if left := driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestContent_deletionIsRetried(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteSnapshot" && driver.Count(rpc) < 3 {
			return csidriver.Fail(codes.FailedPrecondition, "a clone still reads it")
		}
		return nil
	}
	f := start(t, driver, dynamic("a"))
	f.becomes("a", "ready", readyAndUnmarked)
	f.deleteByUser("a")
	f.vanishes("a")
	f.happens("Warning SnapshotDeleteError a", "a clone still reads it")
}

func TestContent_readsTheDeletionPolicyBeforeTheDeletion(t *testing.T) {
	f := start(t, nil, dynamic("a"))
	f.becomes("a", "ready", readyAndUnmarked)
	var changed atomic.Bool
	f.React("get", "volumesnapshotcontents", func(apiserver.Request) error { // the controller's last look
		if changed.CompareAndSwap(false, true) {
			f.Put(dynamic("a", retain, userGone, deleted, takenAs("id-snapshot-uid-a", true)))
		}
		return nil
	})
	f.Put(dynamic("a", userGone, deleted, takenAs("id-snapshot-uid-a", true)))
	f.Eventually(func() error {
		list, err := f.Snapshots.SnapshotV1().VolumeSnapshotContents().List(f.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d contents remain", len(list.Items))
		}
		return err
	})
	if left := f.driver.SnapshotsLeft(); !changed.Load() || len(left) != 1 {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestContent_missingSecretBlocksItsDeletion(t *testing.T) {
	keys := claim.VolumeSnapshotKeys()
	f := start(t, nil, dynamic("a", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		apiserver.Secret("vault", "s", nil))
	f.becomes("a", "ready", readyAndUnmarked)
	f.Delete(apiserver.Secret("vault", "s", nil))
	f.deleteByUser("a")
	f.happens("Warning SnapshotDeleteError a", "vault/s", claim.DeleteWithoutSecretAnnotation)
	if got := f.driver.Count("DeleteSnapshot"); got != 0 || !f.exists("a") {
		t.Fatalf("deleted without its secret, %d calls", got)
	}
	object := f.get("a")
	annotated(claim.DeleteWithoutSecretAnnotation, "true")(object)
	f.Put(object)
	f.vanishes("a")
	if left := f.driver.SnapshotsLeft(); left != nil {
		t.Errorf("still at the driver: %q", left)
	}
}

func TestContent_missingObjectsAreReportedAndAwaited(t *testing.T) {
	keys := claim.VolumeSnapshotKeys()
	elsewhere := "elsewhere"
	f := start(t, nil,
		dynamic("secretless", annotated(keys.SecretName, "s"), annotated(keys.SecretNamespace, "vault")),
		dynamic("half", annotated(keys.SecretName, "s")),
		dynamic("classless", func(o *snapshotv1.VolumeSnapshotContent) { o.Spec.VolumeSnapshotClassName = nil }),
		dynamic("lost", func(o *snapshotv1.VolumeSnapshotContent) { o.Spec.VolumeSnapshotClassName = &elsewhere }),
		dynamic("unbound", unbound),
	)
	f.becomes("secretless", "failed", fails("vault/s"))
	f.becomes("half", "failed", fails(keys.SecretNamespace))
	f.becomes("classless", "failed", fails("no VolumeSnapshotClass"))
	f.becomes("lost", "failed", fails(`VolumeSnapshotClass "elsewhere" does not exist`))
	f.becomes("unbound", "failed", fails("no uid"))
	if calls := f.driver.Calls(); len(calls) > 0 {
		t.Errorf("the driver was called: %q", calls)
	}
	f.Add(apiserver.Secret("vault", "s", nil))
	f.becomes("secretless", "ready", readyAndUnmarked)
}

func TestContent_ofAnotherDriverIsIgnored(t *testing.T) {
	foreign := dynamic("foreign-class")
	other := class(nil)
	other.Name, other.Driver = "other", "other.example.org"
	foreign.Spec.VolumeSnapshotClassName = &other.Name
	f := start(t, nil, other, foreign,
		dynamic("foreign", func(o *snapshotv1.VolumeSnapshotContent) { o.Spec.Driver = "other.example.org" }),
		dynamic("mine"))
	f.becomes("mine", "ready", readyAndUnmarked)
	for _, name := range []string{"foreign", "foreign-class"} {
		if o := f.get(name); o.Status != nil || marked(o) {
			t.Errorf("%s was touched", name)
		}
	}
}

func TestDriver_withoutSnapshotsIsReported(t *testing.T) {
	driver := csidriver.New(driverName)
	driver.Controller = []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	f := start(t, driver, dynamic("a"))
	f.becomes("a", "failed", fails("CREATE_DELETE_SNAPSHOT"))
}

func TestCRDs_installedLaterAreServed(t *testing.T) {
	f := prepare(t, nil)
	f.Unserve("snapshot.storage.k8s.io", true)
	f.Env.Set.PollServed(10 * time.Millisecond)
	f.Run(f.Env, New(f.Env, Options{Poll: fastPoll()}))
	f.Add(dynamic("a"))
	time.Sleep(50 * time.Millisecond)
	f.Unserve("snapshot.storage.k8s.io", false)
	f.becomes("a", "ready", readyAndUnmarked)
}
