package provision

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// few is a number of workers that a test fills.
const few = 4

// runHanging runs a provisioner with few workers and a driver that hangs in the calls of
// which the condition is true.
func (w *world) runHanging(hangs func(rpc string, request any) bool) *Controller {
	w.t.Helper()
	earlier := w.Driver.Before
	w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
		if hangs(rpc, request) {
			<-ctx.Done()
		}
		return earlier(ctx, rpc, request)
	}
	controller, _ := w.run(func(env *cluster.Env, _ *Options) { env.Workers, env.Timeout = few, time.Hour })
	return controller
}

// hanging waits until an RPC hangs as often as it may.
func (w *world) hanging(rpc string) {
	w.t.Helper()
	w.Eventually(func() error {
		if n := w.Driver.Count(rpc); n < few {
			return fmt.Errorf("%d calls of %s hang", n, rpc)
		}
		return nil
	})
}

// slowClass is a class other than that of newClaim.
func slowClass() *storagev1.StorageClass {
	return newClass(func(class *storagev1.StorageClass) { class.Name, class.UID = "slow", "class-2" }, parameters("tier", "slow"))
}

func ofSlowClass(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.StorageClassName = ptr("slow") }

func TestFlows_aClassThatHangsDelaysNoOtherClaim(t *testing.T) {
	w := newWorld(t, newClass(), slowClass())
	w.runHanging(func(_ string, request any) bool {
		create, ok := request.(*csi.CreateVolumeRequest)
		return ok && create.GetParameters()["tier"] == "slow"
	})
	for i := range 30 {
		w.Add(newClaim(fmt.Sprint("slow-", i), ofSlowClass))
	}
	w.hanging("CreateVolume")
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
}

func TestFlows_aClassThatHangsDelaysNoOtherDeletion(t *testing.T) {
	w := newWorld(t, newClass(), slowClass())
	w.runHanging(func(_ string, request any) bool {
		deletion, ok := request.(*csi.DeleteVolumeRequest)
		return ok && strings.Contains(deletion.GetVolumeId(), "slow")
	})
	for i := range 30 {
		w.Add(newVolume(fmt.Sprint("slow-", i), released, func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "slow" }))
	}
	w.hanging("DeleteVolume")
	w.Add(newVolume("a", released), newClaim("b", ofSlowClass))
	w.Eventually(func() error {
		if w.pv("pvc-uid-a") != nil {
			return fmt.Errorf("the volume of the other class is not deleted")
		}
		return nil
	})
	w.saved("pvc-uid-b") // and the class itself still creates
}

// The volumes of claims that were deleted meanwhile are deleted by the workers that
// create others.
func TestFlows_unneededVolumesWhoseDeletionHangsDelayNoClaim(t *testing.T) {
	w := newWorld(t, newClass())
	var away atomic.Bool
	away.Store(true)
	before := w.Driver.Before
	w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
		if rpc == "CreateVolume" && away.Load() {
			return csidriver.Fail(codes.Unavailable, "the storage is away")
		}
		return before(ctx, rpc, request)
	}
	controller := w.runHanging(func(rpc string, _ any) bool { return rpc == "DeleteVolume" })
	var claims []*corev1.PersistentVolumeClaim
	for i := range 10 {
		claims = append(claims, newClaim(fmt.Sprint("gone-", i)))
		w.Add(claims[i])
	}
	w.Eventually(func() error {
		if n := w.stored(); n < len(claims) {
			return fmt.Errorf("%d intents", n)
		}
		return nil
	})
	for _, pvc := range claims {
		if err := w.Core.CoreV1().PersistentVolumeClaims("ns").Delete(w.Context(), pvc.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.Eventually(func() error {
		if n := len(controller.claims.List()); n > 0 {
			return fmt.Errorf("the cache has %d claims", n)
		}
		return nil
	})
	away.Store(false)
	w.hanging("DeleteVolume")
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
}
