package provision

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// retained expects that a deleted claim ends with a PersistentVolume of policy
// Retain, without an intent, and that its volume was never deleted.
func (w *world) retained(name string) {
	w.t.Helper()
	w.retainedAs(name, "id-pvc-uid-"+name)
}

// retainedAs is retained for a volume of a certain ID.
func (w *world) retainedAs(name, handle string) {
	w.t.Helper()
	w.event("Warning VolumeRetained ns/"+name, fmt.Sprintf("%q", handle))
	w.stays(handle)
	pv := w.pv("pvc-uid-" + name)
	if pv == nil || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || len(pv.Finalizers) > 0 {
		w.t.Errorf("the volume has no PersistentVolume of policy Retain: %v", pv)
	}
}

// ended expects what becomes of a deleted claim after a crash at a point. Only
// where the PersistentVolume may have existed is the volume kept.
func (w *world) ended(point, name string) {
	w.t.Helper()
	if point == "create/saving" {
		w.retained(name)
		return
	}
	w.gone()
}

// retire sets the policy of a PersistentVolume to Retain, and deletes its claim.
func (w *world) retire(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	pv = pv.DeepCopy()
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	w.Put(pv)
	w.Delete(pvc)
	return pv
}

// TestReplay_keepsAVolumeWhosePersistentVolumeIsGone: the process ends after it
// created the PersistentVolume and before it removed the intent. Meanwhile an
// administrator retains the volume and deletes the claim and the PersistentVolume.
func TestReplay_keepsAVolumeWhosePersistentVolumeIsGone(t *testing.T) {
	crashed := func(t *testing.T) (*world, *corev1.PersistentVolumeClaim) {
		t.Parallel()
		w, pvc := newWorld(t, newClass()), newClaim("a")
		w.crash("create/saved", func() { w.Add(pvc) })
		return w, pvc
	}
	t.Run("by force", func(t *testing.T) {
		w, pvc := crashed(t)
		w.remove(w.retire(w.pv("pvc-uid-a"), pvc))
		w.run()
		w.retained("a")
	})
	t.Run("its finalizer is removed by the next process", func(t *testing.T) {
		w, pvc := crashed(t)
		w.Delete(w.retire(w.pv("pvc-uid-a"), pvc))
		death, bury := w.mortal("delete/called")
		w.Eventually(func() error {
			if pv := w.pv("pvc-uid-a"); pv != nil {
				return fmt.Errorf("PersistentVolume %s stays", pv.Name)
			}
			return nil
		})
		death.Dead.Store(true) // with what it has not written
		bury()
		w.run()
		w.stays("id-pvc-uid-a")
		if n := w.Driver.Count("CreateVolume"); n != 1 || w.pv("pvc-uid-a") != nil {
			t.Errorf("the deleted PersistentVolume is created again after %d calls of CreateVolume", n)
		}
	})
	t.Run("the claim stays bound to it", func(t *testing.T) {
		w, pvc := crashed(t)
		pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-uid-a", corev1.ClaimLost
		w.Put(pvc)
		w.remove(w.pv("pvc-uid-a"))
		w.run()
		w.stays("id-pvc-uid-a")
		if pv := w.pv("pvc-uid-a"); pv != nil || w.Driver.Count("CreateVolume") != 1 {
			t.Errorf("the deleted PersistentVolume is created again: %v; calls %v", pv, w.Driver.Calls())
		}
	})
	t.Run("an intent of an earlier version", func(t *testing.T) {
		t.Parallel()
		w, pvc := newWorld(t, newClass()), newClaim("a")
		w.crash("create/called", func() { w.Add(pvc) })
		w.editIntents(func(entries map[string]string) {
			for key, text := range entries {
				entries[key] = strings.Replace(text, `"unsaved":true,`, "", 1)
			}
		})
		w.Delete(pvc)
		w.run()
		w.retained("a")
	})
}

// TestSave_thatTheAPIServerRefuses: the PersistentVolume cannot be created, and the
// claim is deleted. Only a definite refusal proves that it never existed.
func TestSave_thatTheAPIServerRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		ends func(*world)
	}{ // of a PersistentVolume with policy Delete
		"definitely": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumes"}, "pvc-uid-a", errors.New("quota exceeded")),
			func(w *world) { w.gone() },
		},
		"with too many requests":    {apierrors.NewTooManyRequests("later", 0), func(w *world) { w.retained("a") }},
		"without a definite answer": {errors.New("etcdserver: request timed out"), func(w *world) { w.retained("a") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pvc := newWorld(t, newClass()), newClaim("a")
			w.React("create", "persistentvolumes", func(q apiserver.Request) error {
				if bytes.Contains(q.Body, []byte("Retain")) {
					return nil
				}
				return row.err
			})
			w.Add(pvc)
			w.run()
			w.event("Warning ProvisioningFailed ns/a", "write its PersistentVolume")
			w.Delete(pvc)
			row.ends(w)
		})
	}
}

// TestSave_marksTheIntentBeforeThePersistentVolume: without the durable mark the
// PersistentVolume is not created.
func TestSave_marksTheIntentBeforeThePersistentVolume(t *testing.T) {
	w := newWorld(t, newClass())
	w.React("update", "configmaps", func(q apiserver.Request) error {
		if strings.Contains(string(q.Body), `"unsaved\":null`) {
			return errors.New("etcdserver: no leader")
		}
		return nil
	})
	w.Add(newClaim("a"))
	w.run()
	w.event("Warning ProvisioningFailed ns/a", "record that its PersistentVolume follows")
	if pv := w.pv("pvc-uid-a"); pv != nil {
		t.Errorf("PersistentVolume %s exists, and the intent does not say so: %v", pv.Name, slices.Collect(maps.Keys(w.Driver.Volumes())))
	}
}

// TestSave_ofAClaimThatOnlyTheCacheHas: the first answer to the creation of the
// PersistentVolume is lost. An administrator retains the volume and deletes both objects
// before the second try, while the watches are interrupted.
func TestSave_ofAClaimThatOnlyTheCacheHas(t *testing.T) {
	w, pvc := newWorld(t, newClass()), newClaim("a")
	var down, once atomic.Bool
	w.React("create", "persistentvolumes", func(apiserver.Request) error {
		if !down.Swap(true) {
			w.BreakWatches()
		}
		return nil
	})
	w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
		if !once.CompareAndSwap(false, true) {
			return nil
		}
		w.remove(w.retire(w.pv("pvc-uid-a"), pvc))
		return errors.New("etcdserver: request timed out")
	})
	w.React("watch", "*", func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	w.Add(pvc)
	w.run()
	w.retained("a")
}

// TestSave_whoseAnswerIsLostForAClaimThatOnlyTheCacheHas: the PersistentVolume exists, and an
// administrator has retained it and deleted both objects before the process could know. The
// deleted PersistentVolume ends the intent. The claim in the cache must not lead to another
// one, whose PersistentVolume would delete the volume.
func TestSave_whoseAnswerIsLostForAClaimThatOnlyTheCacheHas(t *testing.T) {
	w, pvc := newWorld(t, newClass()), newClaim("a")
	var written, gone atomic.Bool
	w.React("get", "persistentvolumeclaims", func(q apiserver.Request) error {
		if written.Load() {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "persistentvolumeclaims"}, q.Name)
		}
		return nil
	})
	w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
		if written.Swap(true) {
			return nil
		}
		pv := w.pv("pvc-uid-a").DeepCopy()
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		w.Put(pv)
		w.remove(pv)
		gone.Store(true)
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	})
	const lag = time.Second
	w.run(func(_ *cluster.Env, o *Options) { o.CacheLag = lag })
	time.Sleep(lag + lag/2) // from then on it believes its cache
	w.Add(pvc)
	w.Eventually(func() error {
		if !gone.Load() {
			return errors.New("the PersistentVolume is not written and removed")
		}
		return nil
	})
	w.Never(2*time.Second, func() error {
		if pv := w.pv("pvc-uid-a"); pv != nil && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			return fmt.Errorf("PersistentVolume %s exists again, with policy Delete", pv.Name)
		}
		return nil
	})
	w.stays("id-pvc-uid-a")
}

// TestSave_ofAVolumeThatIsDeletedMeanwhile: the answer to the creation of the PersistentVolume is
// lost, and its claim is deleted. While the process looks whether the volume is needed, it learns of
// the released PersistentVolume and deletes both.
func TestSave_ofAVolumeThatIsDeletedMeanwhile(t *testing.T) {
	w, pvc := newWorld(t, newClass()), newClaim("a")
	var down, written atomic.Bool
	var reads atomic.Int32
	w.React("watch", "*", func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	w.React("create", "persistentvolumes", func(apiserver.Request) error {
		if !written.Load() {
			down.Store(true)
			w.BreakWatches()
		}
		return nil
	})
	w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
		if written.Swap(true) {
			return nil
		}
		w.Delete(pvc)
		return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	})
	gone := make(chan struct{})
	w.React("get", "persistentvolumeclaims", func(apiserver.Request) error {
		if !written.Load() || reads.Add(1) != 2 { // the second one follows the last read of the intent
			return nil
		}
		defer close(gone)
		released := w.pv("pvc-uid-a").DeepCopy()
		released.Status.Phase = corev1.VolumeReleased
		w.Put(released)
		down.Store(false)
		for began := time.Now(); w.pv("pvc-uid-a") != nil && time.Since(began) < 10*time.Second; {
			time.Sleep(time.Millisecond)
		}
		return nil
	})
	w.Add(pvc)
	w.run()
	<-gone
	w.Never(time.Second, func() error {
		if pv := w.pv("pvc-uid-a"); pv != nil {
			return fmt.Errorf("PersistentVolume %s exists again, with policy %s", pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
		}
		return nil
	})
	if left := w.Driver.Volumes(); len(left) > 0 || w.stored() > 0 {
		t.Errorf("left: volumes %v, %d intents", left, w.stored())
	}
}
