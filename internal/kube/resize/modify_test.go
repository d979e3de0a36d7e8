package resize

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	modifyPending    = corev1.PersistentVolumeClaimModifyVolumePending
	modifyInProgress = corev1.PersistentVolumeClaimModifyVolumeInProgress
	modifyInfeasible = corev1.PersistentVolumeClaimModifyVolumeInfeasible
	modifyingVolume  = corev1.PersistentVolumeClaimVolumeModifyingVolume
	modifyError      = corev1.PersistentVolumeClaimVolumeModifyVolumeError
)

func current(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Status.CurrentVolumeAttributesClassName == nil {
		return ""
	}
	return *pvc.Status.CurrentVolumeAttributesClassName
}

// has waits until claim and volume have a class, and nothing remains to do.
func (w *world) has(name string) {
	w.t.Helper()
	w.Eventually(func() error {
		pvc := w.claim()
		if current(pvc) != name || pvc.Status.ModifyVolumeStatus != nil || condition(pvc, modifyingVolume) != nil || condition(pvc, modifyError) != nil {
			return fmt.Errorf("current %q, %+v, %+v", current(pvc), pvc.Status.ModifyVolumeStatus, pvc.Status.Conditions)
		}
		if named := w.volume().Spec.VolumeAttributesClassName; named == nil || *named != name {
			return errors.New("the volume does not name the class")
		}
		if got := w.driver.Modified("handle-1")["class"]; got != name {
			return fmt.Errorf("the driver's volume is of class %q", got)
		}
		return nil
	})
}

// trying waits for a status of modifying, with a target.
func (w *world) trying(status corev1.PersistentVolumeClaimModifyVolumeStatus, target string) {
	w.t.Helper()
	w.Eventually(func() error {
		want := &corev1.ModifyVolumeStatus{Status: status, TargetVolumeAttributesClassName: target}
		if diff := cmp.Diff(want, w.claim().Status.ModifyVolumeStatus); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// targets are the classes that the driver was asked for, in order.
func (w *world) targets() []string {
	_, parameters := w.asked()
	var names []string
	for _, p := range parameters {
		names = append(names, p["class"])
	}
	return names
}

func TestModify_givesTheVolumeItsClass(t *testing.T) {
	w := newWorld(t, class("gold", "iops=9"))
	w.run()
	w.change(wanting("gold"))
	w.has("gold")
	if diff := cmp.Diff(map[string]string{"class": "gold", "iops": "9"}, w.driver.Modified("handle-1")); diff != "" {
		t.Error(diff)
	}
	w.hasEvent("VolumeModify", "gold")
	w.hasEvent("VolumeModifySuccessful", "gold")
	w.wroteOnly("patch persistentvolumeclaims/status", "patch persistentvolumes", "patch persistentvolumeclaims/status")
	w.staysAt(modifyRPC, 1)
}

func TestModify_warningsAreEventsOfTheClaim(t *testing.T) {
	w := newWorld(t, class("gold", "iops=9"))
	w.driver.Warnings = map[string]string{modifyRPC: "9 IOPS are read as 5"}
	w.run()
	w.change(wanting("gold"))
	w.has("gold")
	w.hasEvent("VolumeModifyWarning", "9 IOPS are read as 5")
	w.hasEvent("VolumeModifySuccessful", "gold")
}

func TestModify_sendsSecretAndNames(t *testing.T) {
	w := newWorld(t, class("gold"), apiserver.Secret("system", "change", map[string]string{"token": "sesame"}))
	w.Put(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{claim.ModifySecretNameAnnotation: "change", claim.ModifySecretNamespaceAnnotation: "system"}
	}))
	w.run(Options{ExtraModifyMetadata: true})
	w.change(wanting("gold"))
	w.has("gold")
	request := w.lastRequest().(*csi.ControllerModifyVolumeRequest)
	want := map[string]string{
		"class": "gold", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop", "csi.storage.k8s.io/pv/name": "pv-1",
	}
	if diff := cmp.Diff(want, request.GetMutableParameters()); diff != "" || request.GetSecrets()["token"] != "sesame" || request.GetVolumeId() != "handle-1" {
		t.Errorf("%v %s", request, diff)
	}
}

func TestModify_reportsAMissingSecretBeforeTheIntent(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.Put(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Namespace: "system", Name: "grow"}
	}))
	w.run()
	w.change(wanting("gold"))
	w.hasEvent("VolumeModifyFailed", "Secret system/grow")
	if status := w.claim().Status.ModifyVolumeStatus; status != nil {
		t.Errorf("%+v", status)
	}
	w.Add(apiserver.Secret("system", "grow", nil))
	w.has("gold")
}

func TestModify_waitsForItsClassAndStartsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.run()
	w.change(wanting("gold"))
	w.trying(modifyPending, "")
	w.hasEvent("VolumeModifyFailed", `"gold" does not exist`)
	if pvc := w.claim(); len(pvc.Status.Conditions) > 0 {
		t.Errorf("%+v", pvc.Status.Conditions)
	}
	w.Add(class("gold"))
	w.has("gold")
}

func TestModify_readsAMissingClassLive(t *testing.T) {
	w := newWorld(t, class("gold"))
	c := New(w.Env, Options{})
	w.Start()
	if _, err := c.class(t.Context(), "gold"); err != nil {
		t.Error(err)
	}
	blind := New(w.NewEnv(), Options{}) // its caches are never filled
	if found, err := blind.class(t.Context(), "gold"); err != nil || found.Name != "gold" {
		t.Errorf("%v, %v", found, err)
	}
}

func TestModify_rejectsAnotherDriversClass(t *testing.T) {
	foreign := class("gold")
	foreign.DriverName = "other.example.com"
	w := newWorld(t, foreign, class("silver"))
	w.run()
	w.change(wanting("gold"))
	w.trying(modifyInfeasible, "gold")
	w.saying(modifyError, "is for driver other.example.com")
	w.hasEvent("VolumeModifyFailed", "is for driver other.example.com")
	w.staysAt(modifyRPC, 0)
	w.change(wanting("silver"))
	w.has("silver")
}

func TestModify_aRejectedClassIsNotRetriedUntilItChanges(t *testing.T) {
	w := newWorld(t, class("gold", "colour=red"), class("silver"))
	w.driver.Changes.Refused = []string{"colour"}
	w.run()
	w.change(wanting("gold"))
	w.trying(modifyInfeasible, "gold")
	w.saying(modifyError, "parameter colour")
	if c := condition(w.claim(), modifyError); c.Reason != "InvalidArgument" {
		t.Errorf("reason %q", c.Reason)
	}
	if condition(w.claim(), modifyingVolume) == nil {
		t.Error("no status says that the class is desired")
	}
	w.staysAt(modifyRPC, 1)
	w.change(wanting("silver"))
	w.has("silver")
}

func TestModify_aRejectedClassIsRetriedLater(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.answer(modifyRPC, csidriver.Fail(codes.InvalidArgument, "not today"))
	w.run(Options{InfeasiblePause: 200 * time.Millisecond})
	w.change(wanting("gold"))
	w.has("gold")
	w.hasEvent("VolumeModifyFailed", "not today")
	w.paused(0, 1, 200*time.Millisecond)
	shown := func(q apiserver.Request) bool { return strings.Contains(string(q.Body), `"Infeasible"`) }
	if !slices.ContainsFunc(w.Writes(), shown) {
		t.Error("the claim did not say that it was refused")
	}
}

func TestModify_aRecreatedClassIsRetriedAtOnce(t *testing.T) {
	w := newWorld(t, class("gold", "colour=red"))
	w.driver.Changes.Refused = []string{"colour"}
	w.run()
	w.change(wanting("gold"))
	w.trying(modifyInfeasible, "gold")
	w.Delete(class("gold"))
	w.Add(class("gold"))
	w.has("gold")
}

func TestModify_revertedAfterARejectionIsCanceled(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.always(modifyRPC, csidriver.Fail(codes.InvalidArgument, "no"))
	w.run()
	w.change(wanting("gold"))
	w.trying(modifyInfeasible, "gold")
	w.saying(modifyingVolume, "refused")
	w.change(wanting(""))
	w.hasEvent("VolumeModifyCanceled", "")
	w.Eventually(func() error {
		if condition(w.claim(), modifyingVolume) != nil {
			return errors.New("still modifying")
		}
		return nil
	})
	w.trying(modifyInfeasible, "gold") // as a record
	w.staysAt(modifyRPC, 1)
}

func TestModify_revertingACompletedChangeIsAModification(t *testing.T) {
	w := newWorld(t, class("gold"), class("silver"))
	w.run()
	w.change(wanting("silver"))
	w.has("silver")
	w.answer(modifyRPC, csidriver.Fail(codes.InvalidArgument, "no"))
	w.change(wanting("gold"))
	w.trying(modifyInfeasible, "gold")
	w.change(wanting("silver"))
	w.has("silver")
	if diff := cmp.Diff([]string{"silver", "gold", "silver"}, w.targets()); diff != "" {
		t.Error(diff)
	}
}

func TestModify_anotherClassWaitsForAnUnknownOutcome(t *testing.T) {
	w := newWorld(t, class("gold"), class("silver"))
	w.always(modifyRPC, csidriver.Fail(codes.DeadlineExceeded, "perhaps"))
	w.run()
	w.change(wanting("gold"))
	w.saying(modifyingVolume, "may still be in progress")
	w.saying(modifyError, "perhaps")
	w.change(wanting("silver"))
	w.called(modifyRPC, w.driver.Count(modifyRPC)+2)
	w.trying(modifyInProgress, "gold")
	w.always(modifyRPC, nil)
	w.has("silver")
	names := w.targets()
	if names[len(names)-2] != "gold" || names[len(names)-1] != "silver" {
		t.Errorf("asked for %v", names)
	}
}

func TestModify_revertedDuringAnUnknownOutcomeContinues(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.always(modifyRPC, csidriver.Fail(codes.Unavailable, "perhaps"))
	w.run()
	w.change(wanting("gold"))
	w.saying(modifyError, "perhaps")
	w.change(wanting(""))
	w.called(modifyRPC, w.driver.Count(modifyRPC)+2)
	w.always(modifyRPC, nil)
	w.has("gold")
}

func TestModify_anotherClassAfterAFinalErrorStartsAtOnce(t *testing.T) {
	w := newWorld(t, class("gold"), class("silver"))
	w.answer(modifyRPC, csidriver.Fail(codes.Internal, "broken"))
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.run()
	w.change(wanting("gold"))
	w.saying(modifyError, "broken")
	w.trying(modifyInProgress, "gold")
	w.change(wanting("silver"))
	w.has("silver")
	if diff := cmp.Diff([]string{"gold", "silver"}, w.targets()); diff != "" {
		t.Error(diff)
	}
}

func TestModify_afterARestartTheChangeInProgressComesFirst(t *testing.T) {
	w := newWorld(t, class("gold"), class("silver"))
	w.Put(dataClaim(wanting("silver"), func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: modifyInProgress, TargetVolumeAttributesClassName: "gold"}
	}))
	w.run()
	w.has("silver")
	if diff := cmp.Diff([]string{"gold", "silver"}, w.targets()); diff != "" {
		t.Error(diff)
	}
}

func TestModify_waitsForTheClassOfAnUnknownOutcome(t *testing.T) {
	w := newWorld(t, class("silver"))
	w.Put(dataClaim(wanting("silver"), func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: modifyInProgress, TargetVolumeAttributesClassName: "gold"}
	}))
	w.run()
	w.hasEvent("VolumeModifyFailed", `"gold" does not exist`)
	w.staysAt(modifyRPC, 0)
	w.Add(class("gold"))
	w.has("silver")
}

// broken is a connection on which one RPC ends with an error that is not a gRPC status.
type broken struct {
	grpc.ClientConnInterface
	rpc string
	err error
}

func (b broken) Invoke(ctx context.Context, name string, request, answer any, options ...grpc.CallOption) error {
	if path.Base(name) == b.rpc {
		return b.err
	}
	return b.ClientConnInterface.Invoke(ctx, name, request, answer, options...)
}

// connect replaces the controller's connection to the test's driver.
func (w *world) connect(wrap func(grpc.ClientConnInterface) grpc.ClientConnInterface) {
	connection := client.NewInProcess(w.driver.Intercept)
	csi.RegisterIdentityServer(connection, w.driver)
	csi.RegisterControllerServer(connection, w.driver)
	csi.RegisterNodeServer(connection, w.driver)
	w.Env.CSI = client.New(wrap(connection), client.Options{Driver: driverName})
}

func TestModify_reportsAnErrorThatIsNotTheDrivers(t *testing.T) {
	w := newWorld(t, class("gold"), class("silver"))
	w.connect(func(c grpc.ClientConnInterface) grpc.ClientConnInterface {
		return broken{c, modifyRPC, errors.New("the pipe broke")}
	})
	w.run()
	w.change(wanting("gold"))
	w.hasEvent("VolumeModifyFailed", "the pipe broke")
	w.saying(modifyError, "the pipe broke")
	w.saying(modifyingVolume, "may still be in progress")
	w.change(wanting("silver"))
	w.trying(modifyInProgress, "gold")
}

func TestModify_aDriverWithoutModifyGetsOneEvent(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.driver.Controller = without(w.driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	w.React("*", "volumeattributesclasses", func(q apiserver.Request) error {
		return fmt.Errorf("%s of classes without MODIFY_VOLUME", q.Verb)
	})
	w.run(Options{NoModify: true})
	w.change(wanting("gold"))
	w.hasEvent("VolumeModifyFailed", "cannot modify volumes")
	w.change(asking(3)) // something else to do
	w.reaches(nodePending, 3)
	if n := w.countEvents("VolumeModifyFailed", ""); n != 1 {
		t.Errorf("said %d times", n)
	}
	w.staysAt(modifyRPC, 0)
}

func TestModify_andResizeDoNotConflict(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.run()
	w.change(func(pvc *corev1.PersistentVolumeClaim) {
		asking(3)(pvc)
		wanting("gold")(pvc)
	})
	w.has("gold")
	w.reaches(nodePending, 3)
	w.wroteOnly( // as many as alone, and in order: no conflict made one twice
		"patch persistentvolumeclaims/status", "patch persistentvolumes", "patch persistentvolumeclaims/status",
		"patch persistentvolumeclaims/status", "patch persistentvolumes", "patch persistentvolumeclaims/status")
}

func TestModify_aFailureDoesNotBlockTheExpansion(t *testing.T) {
	w := newWorld(t, class("gold"))
	w.always(expandRPC, csidriver.Fail(codes.Internal, "broken"))
	w.run()
	w.change(func(pvc *corev1.PersistentVolumeClaim) {
		asking(3)(pvc)
		wanting("gold")(pvc)
	})
	w.has("gold")
	w.always(expandRPC, nil)
	w.always(modifyRPC, csidriver.Fail(codes.Internal, "broken"))
	w.Add(class("silver"))
	w.change(wanting("silver"))
	w.reaches(nodePending, 3)
	w.saying(modifyError, "broken")
}

func TestModify_ignoresClaimsWithoutAClass(t *testing.T) {
	w := newWorld(t, class("gold"))
	name := "gold"
	w.Put(dataClaim(wanting("gold"), func(pvc *corev1.PersistentVolumeClaim) { pvc.Status.CurrentVolumeAttributesClassName = &name }))
	w.run()
	w.staysAt(modifyRPC, 0)
	w.wroteOnly()
}
