package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// stays expects the intents to end without the volume.
func (w *world) stays(id string) {
	w.t.Helper()
	w.Eventually(func() error {
		if n := w.stored(); n != 0 {
			return fmt.Errorf("%d intents", n)
		}
		return nil
	})
	if !slices.Contains(slices.Collect(maps.Values(w.Driver.Volumes())), id) || w.Driver.Count("DeleteVolume") > 0 {
		w.t.Errorf("volume %s of a PersistentVolume is deleted; calls %v", id, w.Driver.Calls())
	}
}

// remove takes an object's finalizers off and deletes it.
func (w *world) remove(pv *corev1.PersistentVolume) {
	bare := pv.DeepCopy()
	bare.Finalizers = nil
	w.Put(bare)
	w.Delete(bare)
}

// rebindings are what an administrator does with a PersistentVolume to keep its
// volume, while the provisioner is down.
func rebindings() map[string]func(*world, *corev1.PersistentVolume) {
	retained := corev1.PersistentVolumeReclaimRetain
	other := &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: "other", UID: "uid-other"}
	return map[string]func(*world, *corev1.PersistentVolume){
		"bound to another claim": func(w *world, pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Spec.ClaimRef = retained, other
			w.Put(pv)
		},
		"without a claim": func(w *world, pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Spec.ClaimRef = retained, nil
			w.Put(pv)
		},
		"under another name": func(w *world, pv *corev1.PersistentVolume) {
			w.remove(pv)
			pv = pv.DeepCopy()
			pv.Name, pv.UID, pv.ResourceVersion = "kept", "", ""
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Spec.ClaimRef = retained, other
			w.Put(pv)
		},
	}
}

// TestReplay_leavesAVolumeThatAPersistentVolumeNames: the process ends after it
// created the PersistentVolume and before it removed the intent. Meanwhile the
// PersistentVolume is kept for another claim.
func TestReplay_leavesAVolumeThatAPersistentVolumeNames(t *testing.T) {
	for name, rebind := range rebindings() {
		for _, class := range []string{"Delete", "Retain"} {
			t.Run(name+", "+class, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, newClass())
				if class == "Retain" {
					w.Put(newClass(retain))
				}
				pvc := newClaim("a")
				w.crash("create/saved", func() { w.Add(pvc) })
				rebind(w, w.pv("pvc-uid-a"))
				w.Delete(pvc)
				w.run()
				w.stays("id-pvc-uid-a")
			})
		}
	}
}

// TestReplay_deletesNothingBeforeItHasAsked: whether a PersistentVolume names the
// volume is asked of the API server, whose silence permits nothing.
func TestReplay_deletesNothingBeforeItHasAsked(t *testing.T) {
	w := newWorld(t, newClass())
	pvc := newClaim("a")
	w.crash("create/called", func() { w.Add(pvc) })
	w.Delete(pvc)
	var failures atomic.Int32
	w.React("list", "persistentvolumes", func(apiserver.Request) error {
		if w.Driver.Count("CreateVolume") < 2 || failures.Add(1) > 3 {
			return nil
		}
		if w.Driver.Count("DeleteVolume") > 0 {
			t.Error("the volume is deleted, and no answer has shown that no PersistentVolume names it")
		}
		return errors.New("etcd is away")
	})
	w.run()
	w.gone()
	if failures.Load() < 4 {
		t.Error("the API server was not asked")
	}
}

// TestReplay_aVolumeMadeByHandEndsNoIntent: a PersistentVolume of the intent's name
// and claim that names another volume is not what came of the intent.
func TestReplay_aVolumeMadeByHandEndsNoIntent(t *testing.T) {
	w := newWorld(t, newClass())
	pvc := newClaim("a")
	w.crash("create/called", func() { w.Add(pvc) })
	w.Driver.AddNamedVolume("restored", 1<<30)
	w.Add(newVolume("a", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "id-restored" }))
	w.Delete(pvc)
	w.run()
	w.Eventually(func() error {
		if volumes := w.Driver.Volumes(); len(volumes) != 1 || volumes["restored"] == "" || w.stored() != 0 {
			return fmt.Errorf("volumes %v, %d intents", volumes, w.stored())
		}
		return nil
	})
}

func shortNames(_ *cluster.Env, o *Options) { o.VolumeNameUUIDLength = 8 }

func withUID(uid types.UID) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.UID = uid }
}

// TestNames_thatCollide: with shortened names the UIDs of two claims can give the
// same name, and the driver the same volume.
func TestNames_thatCollide(t *testing.T) {
	won := func(w *world) {
		w.Add(newVolume("winner", func(pv *corev1.PersistentVolume) {
			pv.Name, pv.Spec.CSI.VolumeHandle, pv.Spec.ClaimRef.UID = "pvc-01234567", "id-pvc-01234567", "01234567-aaaa"
		}))
	}
	t.Run("the loser is deleted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newClass(), newClaim("winner", withUID("01234567-aaaa"), func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-01234567", corev1.ClaimBound
		}))
		loser := newClaim("loser", withUID("01234567-bbbb"))
		w.crash("create/called", func() { w.Add(loser) }, shortNames)
		won(w)
		w.Delete(loser)
		w.run(shortNames)
		w.stays("id-pvc-01234567")
	})
	t.Run("the loser's volume is not what it asked for", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newClass())
		w.Driver.Creation.Strict = false
		loser := newClaim("loser", withUID("01234567-bbbb"), func(pvc *corev1.PersistentVolumeClaim) {
			pvc.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("5Gi")
		})
		w.crash("create/intent", func() { w.Add(loser) }, shortNames)
		var once atomic.Bool
		w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
			if rpc == "CreateVolume" && !once.Swap(true) {
				won(w) // before its cache has it
			}
			return w.before(ctx, rpc, request)
		}
		w.Driver.AddNamedVolume("pvc-01234567", 1<<30)
		w.run(shortNames)
		w.event("Warning ProvisioningFailed ns/loser", `PersistentVolume "pvc-01234567"`)
		if w.Driver.Count("DeleteVolume") > 0 {
			t.Errorf("the winner's volume is deleted: %v", w.Driver.Calls())
		}
	})
	t.Run("the second is served first after a restart", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newClass())
		first := newClaim("first", withUID("01234567-aaaa"))
		w.crash("create/called", func() { w.Add(first) }, shortNames)
		w.Put(newClass(parameters("tier", "changed")))
		w.Delete(first)
		w.Add(newClaim("second", withUID("01234567-bbbb")))
		w.answer(csidriver.Fail(codes.DeadlineExceeded, "told to be slow"))
		w.run(shortNames, func(env *cluster.Env, _ *Options) { env.Workers = 1 })
		w.Eventually(func() error {
			if n := w.Driver.Count("DeleteVolume"); n != 1 {
				return fmt.Errorf("the volume of the first claim stays: %d calls of DeleteVolume, volumes %v", n, w.Driver.Volumes())
			}
			return nil
		})
	})
	t.Run("both at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, newClass())
		a, b := newClaim("a", withUID("01234567-aaaa")), newClaim("b", withUID("01234567-bbbb"))
		w.Add(a, b)
		w.run(shortNames)
		pv := w.saved("pvc-01234567")
		loser := b
		if pv.Spec.ClaimRef.UID == b.UID {
			loser = a
		}
		w.event("Warning ProvisioningFailed ns/"+loser.Name, "pvc-01234567")
		w.Delete(loser)
		w.stays("id-pvc-01234567")
	})
}

// TestUncertain_theIntentOutlivesCodesThatSayNothing: the volume is made, and the
// answer is lost. No code that says nothing about the first call ends the search.
func TestUncertain_theIntentOutlivesCodesThatSayNothing(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.DataLoss, codes.AlreadyExists,
	} {
		lost := func(t *testing.T) *world {
			w := newWorld(t, newClass())
			w.Driver.After = func(_ context.Context, rpc string, _ any) error {
				if rpc == "CreateVolume" && len(w.calls()) == 1 {
					return csidriver.Fail(codes.DeadlineExceeded, "the answer was lost")
				}
				return nil
			}
			w.answer(nil, csidriver.Fail(code, "told to fail"), csidriver.Fail(code, "told to fail"))
			return w
		}
		quick := func(_ *cluster.Env, o *Options) { o.SlowRetry = 10 * time.Millisecond }
		t.Run(code.String()+", the claim is deleted", func(t *testing.T) {
			t.Parallel()
			w := lost(t)
			pvc := newClaim("a")
			w.Add(pvc)
			_, stop := w.run(quick, func(env *cluster.Env, _ *Options) { env.Retry.Start, env.Retry.Max = time.Hour, time.Hour })
			w.event("Warning ProvisioningFailed ns/a", "the answer was lost")
			stop()
			w.Delete(pvc)
			w.run(quick)
			w.gone()
		})
		t.Run(code.String()+", the class is made anew", func(t *testing.T) {
			t.Parallel()
			w := lost(t)
			w.Add(newClaim("a"))
			_, stop := w.run(quick, func(env *cluster.Env, _ *Options) { env.Retry.Start, env.Retry.Max = time.Hour, time.Hour })
			w.event("Warning ProvisioningFailed ns/a", "the answer was lost")
			stop()
			w.Put(newClass(parameters("tier", "changed")))
			w.run(quick)
			w.complete(1)
			if n := len(w.calls()); n != 4 {
				t.Errorf("%d calls of CreateVolume", n)
			}
		})
	}
}

// TestUncertain_aPersonEndsTheSearch: no retry resolves the outcome, but an administrator
// who has inspected the storage can remove the intent.
func TestUncertain_aPersonEndsTheSearch(t *testing.T) {
	w := newWorld(t, newClass())
	pvc := newClaim("a")
	w.crash("create/called", func() { w.Add(pvc) })
	w.Delete(pvc)
	for range 1000 {
		w.answer(csidriver.Fail(codes.Internal, "for good"))
	}
	controller, _ := w.run()
	w.event("Warning ProvisioningFailed ns/a", "for good")
	intents, err := w.Core.CoreV1().ConfigMaps(apiserver.Intents).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range intents.Items {
		intents.Items[i].Data = nil
		w.Put(&intents.Items[i])
	}
	w.Eventually(func() error {
		if controller.intents.Len() != 0 {
			return errors.New("the intent is still known")
		}
		return nil
	})
}
