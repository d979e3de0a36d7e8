package resize

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	inProgress     = corev1.PersistentVolumeClaimControllerResizeInProgress
	infeasible     = corev1.PersistentVolumeClaimControllerResizeInfeasible
	nodePending    = corev1.PersistentVolumeClaimNodeResizePending
	nodeInfeasible = corev1.PersistentVolumeClaimNodeResizeInfeasible
)

func TestResize_growsTheVolumeAndLeavesTheFilesystemToTheNode(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.change(asking(3))
	pvc := w.reaches(nodePending, 3)
	if pvc.Status.Capacity.Storage().Value() != gi {
		t.Errorf("the claim has %s before its filesystem has", pvc.Status.Capacity.Storage())
	}
	for _, kind := range []corev1.PersistentVolumeClaimConditionType{corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending} {
		if condition(pvc, kind) == nil {
			t.Errorf("no condition %s", kind)
		}
	}
	if pv := w.volume(); inGi(pv.Spec.Capacity) != 3 || pv.Annotations[claim.PreResizeAnnotation] != "1Gi" {
		t.Errorf("the volume: %s, %v", pv.Spec.Capacity.Storage(), pv.Annotations)
	}
	w.hasEvent("Resizing", "3Gi")
	w.hasEvent("FileSystemResizeRequired", "")
	w.wroteOnly("patch persistentvolumeclaims/status", "patch persistentvolumes", "patch persistentvolumeclaims/status")

	w.kubelet()
	w.Eventually(func() error {
		if _, marked := w.volume().Annotations[claim.PreResizeAnnotation]; marked {
			return errors.New("the old size is still on the volume")
		}
		return nil
	})
	w.staysAt(expandRPC, 1)
}

func TestResize_completesWithoutNodeExpansion(t *testing.T) {
	w := newWorld(t)
	w.driver.Changes.NoNodeExpansion = true
	w.driver.Changes.Answer = func(size int64) int64 { return size + gi } // it rounds up
	w.run()
	w.change(asking(3))
	w.hasEvent("VolumeResizeSuccessful", "4Gi")
	pvc := w.reaches("", 3)
	if inGi(pvc.Status.Capacity) != 4 || len(pvc.Status.Conditions) > 0 || pvc.Annotations[claim.NodeExpansionNotRequiredAnnotation] != "true" {
		t.Errorf("%+v %v", pvc.Status, pvc.Annotations)
	}
	if pv := w.volume(); inGi(pv.Spec.Capacity) != 4 || len(pv.Annotations) > 0 {
		t.Errorf("the volume: %s, %v", pv.Spec.Capacity.Storage(), pv.Annotations)
	}
	w.driver.Changes.NoNodeExpansion = false
	w.change(asking(6))
	if pvc := w.reaches(nodePending, 6); pvc.Annotations[claim.NodeExpansionNotRequiredAnnotation] != "" {
		t.Error("the annotation of an earlier expansion makes the kubelets skip this one")
	}
}

func TestResize_nodeOnlyDriverIsNotCalled(t *testing.T) {
	w := newWorld(t)
	w.driver.Controller = without(w.driver.Controller, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	if pv := w.volume(); inGi(pv.Spec.Capacity) != 3 || pv.Annotations[claim.PreResizeAnnotation] != "1Gi" {
		t.Errorf("the volume: %s, %v", pv.Spec.Capacity.Storage(), pv.Annotations)
	}
	w.staysAt(expandRPC, 0)
}

func TestResize_aDriverWithoutExpansionGetsOneEvent(t *testing.T) {
	w := newWorld(t)
	w.driver.Controller = without(w.driver.Controller, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	w.driver.Node = nil
	w.run()
	w.change(asking(3))
	w.hasEvent("VolumeResizeFailed", "cannot expand volumes")
	w.change(func(pvc *corev1.PersistentVolumeClaim) { pvc.Labels = map[string]string{"touched": "yes"} })
	w.staysAt(expandRPC, 0)
	if n := w.countEvents("VolumeResizeFailed", ""); n != 1 {
		t.Errorf("said %d times", n)
	}
	w.wroteOnly()
}

func TestResize_sendsTheFieldsOfTheVolume(t *testing.T) {
	w := newWorld(t, apiserver.Secret("system", "grow", map[string]string{"token": "sesame"}))
	w.driver.Controller = append(w.driver.Controller, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	w.Put(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Namespace: "system", Name: "grow"}
		pv.Spec.MountOptions = []string{"noatime"}
	}))
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	request := w.lastRequest().(*csi.ControllerExpandVolumeRequest)
	capability := request.GetVolumeCapability()
	if request.GetVolumeId() != "handle-1" || request.GetCapacityRange().GetRequiredBytes() != 3*gi || request.GetCapacityRange().GetLimitBytes() != 0 ||
		request.GetSecrets()["token"] != "sesame" || capability.GetMount().GetFsType() != "xfs" ||
		!slices.Equal(capability.GetMount().GetMountFlags(), []string{"noatime"}) ||
		capability.GetAccessMode().GetMode() != csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER {
		t.Errorf("asked for %v", request)
	}
}

func TestResize_reportsAMissingSecretAndRetries(t *testing.T) {
	w := newWorld(t)
	w.Put(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Namespace: "system", Name: "grow"}
	}))
	w.run()
	w.change(asking(3))
	w.hasEvent("VolumeResizeFailed", "Secret system/grow")
	if pvc := w.claim(); state(pvc) != "" || w.driver.Count(expandRPC) > 0 {
		t.Errorf("state %q", state(pvc))
	}
	w.Add(apiserver.Secret("system", "grow", map[string]string{"token": "sesame"}))
	w.reaches(nodePending, 3)
}

func TestResize_reportsUnusableAccessModes(t *testing.T) {
	w := newWorld(t)
	w.Put(dataVolume(func(pv *corev1.PersistentVolume) {
		pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod, corev1.ReadWriteOnce}
	}))
	w.run()
	w.change(asking(3))
	w.hasEvent("VolumeResizeFailed", "ReadWriteOncePod")
}

func TestResize_rejectsASmallerSizeOfTheDriver(t *testing.T) {
	w := newWorld(t)
	w.driver.Changes.Answer = func(int64) int64 { return 2 * gi }
	w.run()
	w.change(asking(3))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "less than the")
	w.hasEvent("VolumeResizeFailed", "less than the")
	if pvc := w.reaches(inProgress, 3); inGi(pvc.Status.Capacity) != 1 || inGi(w.volume().Spec.Capacity) != 1 {
		t.Errorf("the claim has %s, the volume %s", pvc.Status.Capacity.Storage(), w.volume().Spec.Capacity.Storage())
	}
	w.change(asking(2)) // what the driver says it has
	w.reaches(nodePending, 2)
}

func TestResize_infeasibleIsTriedTwice(t *testing.T) {
	w := newWorld(t)
	w.always(expandRPC, csidriver.Fail(codes.OutOfRange, "10 is too much"))
	w.run()
	w.change(asking(10))
	w.reaches(infeasible, 10)
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "10 is too much")
	w.called(expandRPC, 2)
	w.staysAt(expandRPC, 2)
	w.always(expandRPC, nil)
	w.change(asking(5))
	w.reaches(nodePending, 5)
	if c := condition(w.claim(), corev1.PersistentVolumeClaimControllerResizeError); c != nil {
		t.Errorf("the error outlives the success: %+v", c)
	}
}

func TestResize_infeasibleIsRetriedLater(t *testing.T) {
	w := newWorld(t)
	w.answer(expandRPC, csidriver.Fail(codes.InvalidArgument, "no"), csidriver.Fail(codes.InvalidArgument, "no"))
	w.run(Options{InfeasiblePause: 200 * time.Millisecond})
	w.change(asking(10))
	w.reaches(nodePending, 10)
	w.paused(0, 2, 200*time.Millisecond) // it begins with the repetition
}

func TestResize_aLowerRequestAfterAFinalErrorUsesTheLowerSize(t *testing.T) {
	w := newWorld(t)
	w.always(expandRPC, csidriver.Fail(codes.Internal, "broken"))
	w.run()
	w.change(asking(10))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "broken")
	w.reaches(inProgress, 10)
	w.change(asking(5))
	w.reaches(inProgress, 5)
	w.always(expandRPC, nil)
	w.reaches(nodePending, 5)
	if size := w.driver.Size("handle-1"); size != 5*gi {
		t.Errorf("the disk has %d", size)
	}
}

func TestResize_aLowerRequestDuringAnUnknownOutcomeKeepsTheLargerSize(t *testing.T) {
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.Canceled} {
		w := newWorld(t)
		w.always(expandRPC, csidriver.Fail(code, "perhaps"))
		w.run()
		w.change(asking(10))
		w.hasEvent("VolumeResizeFailed", "perhaps")
		w.change(asking(5))
		w.called(expandRPC, w.driver.Count(expandRPC)+2)
		w.always(expandRPC, nil)
		pvc := w.reaches(nodePending, 10)
		if c := condition(pvc, corev1.PersistentVolumeClaimControllerResizeError); c != nil {
			t.Errorf("%s: called an error: %+v", code, c)
		}
		if sizes, _ := w.asked(); slices.Max(sizes) != 10 || slices.Min(sizes) != 10 {
			t.Errorf("%s: asked for %v", code, sizes)
		}
	}
}

func TestResize_aHigherRequestAfterSuccessExpandsAgain(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	w.change(asking(5))
	w.staysAt(expandRPC, 1) // the kubelet's turn
	w.kubelet()
	w.reaches(nodePending, 5)
	w.kubelet()
	w.staysAt(expandRPC, 2)
}

func TestResize_retriesInfeasibleNodeExpansion(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	w.change(func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = nodeInfeasible
	}, "status")
	w.called(expandRPC, 2)
	w.reaches(nodePending, 3)
}

func TestResize_retriesTheSameSizeAfterATimeout(t *testing.T) {
	w := newWorld(t)
	hung := make(chan struct{})
	before := w.driver.Before
	w.driver.Before = func(ctx context.Context, rpc string, request any) error {
		if err := before(ctx, rpc, request); err != nil || rpc != expandRPC || w.driver.Count(expandRPC) > 1 {
			return err
		}
		<-ctx.Done()
		close(hung)
		return ctx.Err()
	}
	w.Env.Timeout = 50 * time.Millisecond
	w.run()
	w.change(asking(3))
	<-hung
	w.hasEvent("VolumeResizeFailed", "DeadlineExceeded")
	w.reaches(nodePending, 3)
	// More often than twice where the second call, too, took its time.
	if sizes, _ := w.asked(); len(sizes) < 2 || slices.Max(sizes) != 3 || slices.Min(sizes) != 3 {
		t.Errorf("asked for %v", sizes)
	}
}

func TestResize_retriesAfterALostAnswer(t *testing.T) {
	w := newWorld(t)
	w.driver.After = func(_ context.Context, rpc string, _ any) error {
		if rpc == expandRPC && w.driver.Count(rpc) == 1 {
			return csidriver.Fail(codes.Unavailable, "the driver restarted")
		}
		return nil
	}
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
}

func TestResize_ignoresForeignClaims(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim){
		"another driver's": func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.CSI.Driver = "other.example.com"
		},
		"no CSI volume":      func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI = nil },
		"an earlier claim's": func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "uid-old" },
		"another namespace's": func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.ClaimRef.Namespace = "other"
		},
		"not reserved": func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef = nil },
		"not bound": func(_ *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) {
			pvc.Status.Phase = corev1.ClaimPending
		},
		"bound to nothing":         func(_ *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeName = "" },
		"bound to what is missing": func(_ *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) { pvc.Spec.VolumeName = "pv-2" },
	} {
		w := newWorld(t, class("gold"))
		pv, pvc := dataVolume(), dataClaim(asking(3), wanting("gold"))
		change(pv, pvc)
		w.Put(pv, pvc)
		w.run()
		w.Never(50*time.Millisecond, func() error {
			if calls := w.driver.Count(expandRPC) + w.driver.Count(modifyRPC) + len(w.writes()) + len(w.Events()); calls > 0 {
				return fmt.Errorf("%s: something was done", name)
			}
			return nil
		})
	}
}

func TestResize_nodeActsOnItsOwnVolumesOnly(t *testing.T) {
	at := func(node string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.example.com/node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}}
		}
	}
	for node, mine := range map[string]bool{"here": true, "there": false} {
		w := newWorld(t)
		w.Put(dataVolume(at(node)))
		w.Env.Scope = cluster.Scope{Node: "here", Segments: map[string]string{"topology.example.com/node": "here"}}
		w.run()
		w.change(asking(3))
		if mine {
			w.reaches(nodePending, 3)
			continue
		}
		w.staysAt(expandRPC, 0)
	}
}

// TestResize_nodeActsOnAVolumeWithoutAffinityThatItsDriverHas: its object does not
// say where it is.
func TestResize_nodeActsOnAVolumeWithoutAffinityThatItsDriverHas(t *testing.T) {
	for handle, mine := range map[string]bool{"handle-1": true, "handle-of-another-node": false} {
		w := newWorld(t)
		w.Put(dataVolume(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = handle }))
		w.Env.Scope = cluster.Scope{Node: "here", Segments: map[string]string{"topology.example.com/node": "here"}}
		w.run()
		w.change(asking(3))
		if mine {
			w.reaches(nodePending, 3)
			continue
		}
		w.staysAt(expandRPC, 0)
	}
}

func TestResize_aClaimBeforeItsVolumeIsProcessed(t *testing.T) {
	w := newWorld(t)
	w.Delete(dataVolume())
	w.Put(dataClaim(asking(3)))
	w.run()
	w.staysAt(expandRPC, 0)
	w.Add(dataVolume())
	w.reaches(nodePending, 3)
}

func TestResize_forgetsTheHistoryOfADeletedClaim(t *testing.T) {
	w := newWorld(t)
	w.always(expandRPC, csidriver.Fail(codes.Internal, "broken"))
	c, _ := w.runIn(w.Env)
	w.change(asking(10))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "broken")
	if !c.memories.of("uid-data").expand.Final {
		t.Error("a final error is not remembered")
	}
	w.Delete(dataClaim())
	w.Eventually(func() error {
		if n := c.memories.len(); n > 0 {
			return fmt.Errorf("%d claims are remembered", n)
		}
		return nil
	})
}

func TestResize_truncatesALongAnswer(t *testing.T) {
	w := newWorld(t)
	w.always(expandRPC, csidriver.Fail(codes.Internal, strings.Repeat("ä", 5000)))
	w.run()
	w.change(asking(3))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "…")
	if text := condition(w.claim(), corev1.PersistentVolumeClaimControllerResizeError).Message; len(text) > cluster.MaxMessage || strings.ContainsRune(text, '\uFFFD') {
		t.Errorf("%d bytes: %q", len(text), text[len(text)-10:])
	}
}

// TestResize_ownWritesDoNotRequeue counts what happens while the
// queue's pause is long.
func TestResize_ownWritesDoNotRequeue(t *testing.T) {
	w := newWorld(t)
	w.Env.Retry.Start, w.Env.Retry.Max = time.Hour, time.Hour
	w.always(expandRPC, csidriver.Fail(codes.Internal, "broken"))
	w.run()
	w.change(asking(3))
	w.saying(corev1.PersistentVolumeClaimControllerResizeError, "broken")
	w.staysAt(expandRPC, 1)
}
