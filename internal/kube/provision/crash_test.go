package provision

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// mortal starts a provisioner that dies at a point: from then on it has no effect, and its
// last writes are lost. bury ends it.
func (w *world) mortal(point string, change ...func(*cluster.Env, *Options)) (death *apiserver.Death, bury func()) {
	w.t.Helper()
	options := append([]func(*cluster.Env, *Options){func(env *cluster.Env, o *Options) {
		death = w.Mortal(env, "provision/"+point)
		w.dead.Store(&death.Dead)
		o.ForgetAfter = time.Hour
	}}, change...)
	_, stop := w.run(options...)
	return death, func() {
		stop()
		death.Dead.Store(true)
		w.dead.CompareAndSwap(&death.Dead, nil)
	}
}

// crash runs a provisioner until it has died at a point.
func (w *world) crash(point string, trigger func(), change ...func(*cluster.Env, *Options)) {
	w.t.Helper()
	w.crashAs(point, func(env *cluster.Env, o *Options) {
		for _, c := range change {
			c(env, o)
		}
	}, trigger)
}

// crashAs is crash of a provisioner that is deployed in a certain way.
func (w *world) crashAs(point string, as func(*cluster.Env, *Options), trigger func()) {
	w.t.Helper()
	death, bury := w.mortal(point, as, func(env *cluster.Env, _ *Options) { env.Retry.Start, env.Retry.Max = time.Hour, time.Hour })
	trigger()
	death.Await()
	bury()
}

// createPoints are the steps of a creation (external-provisioner#486).
func createPoints() []string {
	return []string{"create/intent", "create/called", "create/answered", "create/saving", "create/saved", "create/dropped"}
}

func TestCrash_whileAVolumeIsMade(t *testing.T) {
	for _, point := range createPoints() {
		t.Run(point+", the claim stays", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			w.crash(point, func() { w.Add(newClaim("a")) })
			w.Put(newClass(parameters("tier", "changed"))) // what is repeated must not depend on it
			w.controllerManager()
			w.run()
			w.complete(1)
			w.Eventually(func() error {
				if w.claimNow("a").Spec.VolumeName != "pvc-uid-a" {
					return errors.New("the claim is not bound")
				}
				return nil
			})
		})
		t.Run(point+", the claim is deleted", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			pvc := newClaim("a")
			w.crash(point, func() { w.Add(pvc) })
			w.Delete(pvc)
			w.controllerManager()
			w.run()
			w.ended(point, "a")
		})
		t.Run(point+", the claim is deleted and the class retains", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass(retain))
			pvc := newClaim("a")
			w.crash(point, func() { w.Add(pvc) })
			w.Delete(pvc)
			w.controllerManager()
			w.run()
			w.complete(1)
			w.Eventually(func() error {
				if phase := w.pv("pvc-uid-a").Status.Phase; phase != corev1.VolumeReleased {
					return fmt.Errorf("phase %s", phase)
				}
				return nil
			})
		})
	}
}

func TestCrash_whileALostClaimIsUndone(t *testing.T) {
	for _, point := range []string{"undo/answered", "undo/deleted"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			pvc := newClaim("a")
			w.crash("create/called", func() { w.Add(pvc) })
			w.Delete(pvc)
			w.crash(point, func() {})
			w.controllerManager()
			w.run()
			w.gone()
		})
	}
}

func TestCrash_whileAVolumeIsDeleted(t *testing.T) {
	for _, point := range []string{"delete/called", "delete/removed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			w.controllerManager()
			_, stop := w.run()
			pvc := newClaim("a")
			w.Add(pvc)
			w.complete(1)
			stop()
			w.crash(point, func() { w.Delete(pvc) })
			w.run()
			w.gone()
		})
	}
}

// TestCrash_theRecordOfAVolumeThatIsReclaimed: an intent that is removed late
// must not create its volume again after the volume was deleted.
func TestCrash_theRecordOfAVolumeThatIsReclaimed(t *testing.T) {
	w := newWorld(t, newClass())
	w.controllerManager()
	pvc := newClaim("a")
	w.crash("delete/called", func() {
		w.Add(pvc)
		w.saved("pvc-uid-a")
		w.Delete(pvc)
	})
	if w.stored() != 0 {
		t.Fatal("the volume is deleted, and its intent would create it again")
	}
	w.run()
	w.gone()
	if n := w.Driver.Count("CreateVolume"); n != 1 {
		t.Errorf("%d calls of CreateVolume", n)
	}
}

func TestReplay_keepsWhatTheDriverCannotRepeat(t *testing.T) {
	objects := append(bound("src"), newClass())
	w := newWorld(t, objects...)
	w.Driver.AddVolume("id-pvc-uid-src", 1<<30)
	pvc := newClaim("a", cloneOf("src"))
	w.crash("create/called", func() { w.Add(pvc) })
	w.Delete(pvc)
	w.answer(csidriver.Fail(codes.NotFound, "no such source"))
	controller, _ := w.run()
	w.event("Warning ProvisioningCleanupFailed ns/a", `volume "pvc-uid-a" may have been made`)
	w.Eventually(func() error {
		if controller.quarantined() != 1 || w.stored() != 1 {
			return fmt.Errorf("%d in quarantine, %d intents", controller.quarantined(), w.stored())
		}
		return nil
	})
	if w.Driver.Count("DeleteVolume") != 0 {
		t.Error("something was deleted by guess")
	}
}

func TestReplay_waitsForRecordsThatCannotBeRead(t *testing.T) {
	w := newWorld(t, newClass(), newClaim("a"))
	var away atomic.Bool
	away.Store(true)
	w.React("list", "configmaps", func(apiserver.Request) error {
		if away.Load() {
			return errors.New("etcd is away")
		}
		return nil
	})
	w.run()
	w.Never(100*time.Millisecond, func() error {
		if len(w.calls()) > 0 {
			return errors.New("a volume is made although the intents of earlier processes are unknown")
		}
		return nil
	})
	away.Store(false)
	w.complete(1)
}

func TestReplay_noVolumeWithoutARecord(t *testing.T) {
	w := newWorld(t, newClass(), newClaim("a"))
	w.React("create", "configmaps", func(apiserver.Request) error { return errors.New("quota exceeded") })
	w.run()
	w.event("Warning ProvisioningFailed ns/a", "quota exceeded")
	if len(w.calls()) > 0 {
		t.Error("the driver was called")
	}
}

// TestFailures_ofEveryWrite makes each kind of write fail some times: no volume may
// be lost or created twice.
func TestFailures_ofEveryWrite(t *testing.T) {
	for _, what := range []string{"create persistentvolumes", "create configmaps", "update configmaps", "delete configmaps", "delete persistentvolumes", "patch persistentvolumes", "get persistentvolumes"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass())
			verb, resource, _ := strings.Cut(what, " ")
			var failures atomic.Int32
			w.React(verb, resource, func(apiserver.Request) error {
				if failures.Add(1)%3 != 0 {
					return errors.New("etcdserver: request timed out")
				}
				return nil
			})
			w.controllerManager()
			w.run()
			claims := []*corev1.PersistentVolumeClaim{newClaim("a"), newClaim("b"), newClaim("c")}
			for _, pvc := range claims {
				w.Add(pvc)
			}
			w.complete(len(claims))
			for _, pvc := range claims {
				w.Delete(pvc)
			}
			w.gone()
		})
	}
}
