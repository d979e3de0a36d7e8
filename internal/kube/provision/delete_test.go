package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func keeps(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
}
func free(pv *corev1.PersistentVolume) { pv.Finalizers = nil }
func static(pv *corev1.PersistentVolume) {
	pv.Annotations, pv.Finalizers = nil, nil
}
func terminating(pv *corev1.PersistentVolume) {
	now := metav1.Now()
	pv.DeletionTimestamp = &now
}
func others(pv *corev1.PersistentVolume) {
	pv.Annotations[claim.ProvisionedByAnnotation] = "e.example"
}
func at(node string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "node", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
}

func TestDue_ofThisNodeAlone(t *testing.T) {
	node := newWorld(t).NewEnv()
	node.Scope = cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}}
	local := New(node, Options{})
	for place, want := range map[string]lifecycle.Due{"n1": lifecycle.DueDelete, "n2": lifecycle.DueNothing} {
		if got := local.due(newVolume("a", released, at(place))); got != want {
			t.Errorf("on node n1, a released volume of %s: %v, want %v", place, got, want)
		}
	}
	if got := local.due(newVolume("a", released)); got != lifecycle.DueDelete { // if the driver has it
		t.Errorf("on node n1, a released volume of no place: %v", got)
	}
}

// A volume that another PersistentVolume names is not deleted, as on the host: an
// administrator made that object to keep the data, or a user's claim is bound to it.
func TestDelete_waitsForAnotherPersistentVolumeOfTheVolume(t *testing.T) {
	other := func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "id-pvc-uid-a" }
	w := newWorld(t, newClass(), newVolume("a", released), newVolume("b", other, keeps, free))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run()
	w.event(`Normal VolumeFailedDelete pvc-uid-a: PersistentVolume "pvc-uid-b" names the same volume`)
	if w.Driver.Count("DeleteVolume") > 0 {
		t.Error("a volume that another PersistentVolume names was deleted")
	}
	w.Delete(newVolume("b"))
	w.gone()
}

// The cache may lack an object that was made before the last change of the volume's own.
func TestDelete_waitsForTheCacheOfPersistentVolumes(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var down, once atomic.Bool
	w.React("get", "persistentvolumes", func(apiserver.Request) error {
		if once.CompareAndSwap(false, true) {
			down.Store(true)
			w.BreakWatches()
			w.Put(newVolume("b", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "id-pvc-uid-a" }, keeps, free))
			w.Put(newVolume("a", released, func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"changed": "later"} }))
		}
		return nil
	})
	w.React("watch", "persistentvolumes", func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	w.run()
	w.Never(100*time.Millisecond, func() error {
		if n := w.Driver.Count("DeleteVolume"); n > 0 {
			return fmt.Errorf("%d calls to delete a volume that another PersistentVolume names", n)
		}
		return nil
	})
	down.Store(false)
	w.event(`Normal VolumeFailedDelete pvc-uid-a: PersistentVolume "pvc-uid-b" names the same volume`)
}

// An administrator gives a retained volume up and deletes it while the finalizer is being
// removed because it was retained.
func TestRelease_notOfAVolumeThatWasGivenUpMeanwhile(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", keeps, released))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var once atomic.Bool
	w.React("patch", "persistentvolumes", func(apiserver.Request) error {
		if once.CompareAndSwap(false, true) {
			w.Put(newVolume("a", released, terminating))
		}
		return nil
	})
	w.run()
	w.gone()
}

func TestDelete_twoObjectsOfOneVolumeGoTogether(t *testing.T) {
	other := func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "id-pvc-uid-a" }
	w := newWorld(t, newClass(), newVolume("a", released), newVolume("b", other, released))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run()
	w.gone()
}

func TestDelete_ofWhatIsNotOurs(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released, others), newVolume("b", released, func(pv *corev1.PersistentVolume) {
		pv.Spec.CSI.Driver = "e.example"
	}), newVolume("c", released, keeps, free))
	w.run()
	w.Never(100*time.Millisecond, func() error {
		if len(w.Driver.Calls()) > 0 || len(w.Writes()) > 0 {
			return fmt.Errorf("calls %v, writes %v", w.Driver.Calls(), w.Writes())
		}
		return nil
	})
}

func TestDelete_aVolumeWrittenByHand(t *testing.T) {
	w := newWorld(t, newClass(), newClaim("a", func(p *corev1.PersistentVolumeClaim) { p.Spec.VolumeName = "pvc-uid-a" }), newVolume("a", static))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.controllerManager()
	w.run()
	w.Eventually(func() error {
		if pv := w.pv("pvc-uid-a"); !has(pv.Finalizers, claim.ProvisionerFinalizer) {
			return fmt.Errorf("finalizers %v", pv.Finalizers)
		}
		return nil
	})
	w.Delete(newClaim("a"))
	w.gone()
}

func TestDelete_twoWrites(t *testing.T) {
	const attach = "external-attacher/d-example"
	w := newWorld(t, newClass(), newVolume("a", released, func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, attach) }))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run(func(_ *cluster.Env, o *Options) { o.AttachFinalizer = attach })
	w.gone()
	var writes []string
	for _, write := range w.Writes() {
		writes = append(writes, write.Verb+" "+write.Resource)
	}
	if want := []string{"delete persistentvolumes", "patch persistentvolumes"}; !slices.Equal(writes, want) {
		t.Errorf("writes %v", writes)
	}
}

func newAttachment(volume string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

// TestDelete_ofAVolumeThatAnEarlierProcessPublished: a standby takes the lease over while its
// watch of VolumeAttachments is interrupted, and its cache lacks the one of a released volume.
func TestDelete_ofAVolumeThatAnEarlierProcessPublished(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	env := w.NewEnv()
	controller := New(env, Options{Attachments: true})
	env.Set.Start(w.Context())
	if err := env.Set.Wait(w.Context()); err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	down.Store(true)
	w.React("watch", "volumeattachments", func(apiserver.Request) error {
		if down.Load() {
			return apierrors.NewServiceUnavailable("down")
		}
		return nil
	})
	w.BreakWatches()
	attachment := newAttachment("pvc-uid-a")
	w.Add(attachment)
	if after, err := controller.syncVolume(w.Context(), "pvc-uid-a"); after != behindCache || err != nil {
		t.Errorf("the cache is behind: again after %v, %v", after, err)
	}
	down.Store(false)
	w.Eventually(func() error {
		if after, err := controller.syncVolume(w.Context(), "pvc-uid-a"); after != recheckPeriod || err != nil {
			return fmt.Errorf("it is attached: again after %v, %w", after, err)
		}
		return nil
	})
	if w.Driver.Count("DeleteVolume") > 0 {
		t.Error("an attached volume was deleted")
	}
}

func TestDelete_waitsForTheEndOfAttachments(t *testing.T) {
	attachment := newAttachment("pvc-uid-a")
	w := newWorld(t, newClass(), newVolume("a", released), attachment)
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run(func(_ *cluster.Env, o *Options) { o.Attachments = true })
	w.event("Normal VolumeFailedDelete pvc-uid-a: persistentvolume pvc-uid-a is still attached to node n1")
	if w.Driver.Count("DeleteVolume") > 0 {
		t.Error("an attached volume was deleted")
	}
	w.Delete(attachment)
	w.gone()
}

func TestDelete_waitsForItsSecret(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released, func(pv *corev1.PersistentVolume) {
		pv.Annotations[claim.DeletionSecretNameAnnotation], pv.Annotations[claim.DeletionSecretNamespaceAnnotation] = "s", "ns"
	}))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var secret atomic.Pointer[string]
	before := w.Driver.Before
	w.Driver.Before = func(ctx context.Context, rpc string, request any) error {
		if request, is := request.(*csi.DeleteVolumeRequest); is {
			value := request.GetSecrets()["k"]
			secret.Store(&value)
		}
		return before(ctx, rpc, request)
	}
	w.run()
	w.event("Warning VolumeFailedDelete pvc-uid-a", "the secret for DeleteVolume is missing", claim.DeleteWithoutSecretAnnotation+"=true")
	if w.Driver.Count("DeleteVolume") > 0 {
		t.Error("deleted without its secret")
	}
	w.Add(apiserver.Secret("ns", "s", map[string]string{"k": "v"}))
	w.gone()
	if got := secret.Load(); got == nil || *got != "v" {
		t.Errorf("the driver got %v", got)
	}
}

// TestDelete_readsThePolicyLast: an administrator retains the volume while its secret is read.
func TestDelete_readsThePolicyLast(t *testing.T) {
	withSecret := func(pv *corev1.PersistentVolume) {
		pv.Annotations[claim.DeletionSecretNameAnnotation], pv.Annotations[claim.DeletionSecretNamespaceAnnotation] = "s", "ns"
	}
	w := newWorld(t, newClass(), newVolume("a", released, withSecret), apiserver.Secret("ns", "s", nil))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var retained atomic.Bool
	w.React("get", "secrets", func(apiserver.Request) error {
		if !retained.Swap(true) {
			w.Put(newVolume("a", released, withSecret, keeps))
		}
		return nil
	})
	w.run()
	w.Eventually(func() error {
		if !retained.Load() {
			return errors.New("the secret was not read")
		}
		return nil
	})
	w.Never(300*time.Millisecond, func() error {
		if w.Driver.Count("DeleteVolume") > 0 {
			return errors.New("a retained volume was deleted")
		}
		return nil
	})
}

func TestDelete_withoutItsSecretWhenToldTo(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released, func(pv *corev1.PersistentVolume) {
		pv.Annotations[claim.DeletionSecretNameAnnotation], pv.Annotations[claim.DeletionSecretNamespaceAnnotation] = "s", "ns"
		pv.Annotations[claim.DeleteWithoutSecretAnnotation] = "true"
	}))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run()
	w.gone()
}

func TestDelete_anOldVolumeAsksItsClassForTheSecret(t *testing.T) {
	class := newClass(parameters("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-s", "csi.storage.k8s.io/provisioner-secret-namespace", "${pvc.namespace}"))
	w := newWorld(t, class, newVolume("a", released, func(pv *corev1.PersistentVolume) {
		pv.Annotations = map[string]string{claim.ProvisionedByAnnotation: driverName}
	}))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run()
	w.event("Warning VolumeFailedDelete pvc-uid-a", "ns/a-s")
	w.Add(apiserver.Secret("ns", "a-s", nil))
	w.gone()
}

func TestDelete_ofAVolumeThatWasTakenBackMeanwhile(t *testing.T) {
	w := newWorld(t, newClass())
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	w.run()
	// The cache hears "released"; the object has a claim again by the time it is read.
	w.React("get", "persistentvolumes", func(apiserver.Request) error {
		w.Put(newVolume("a"))
		return nil
	})
	w.Add(newVolume("a", released))
	w.Never(150*time.Millisecond, func() error {
		if w.Driver.Count("DeleteVolume") > 0 {
			return errors.New("the volume of a bound object is deleted")
		}
		return nil
	})
}

func TestDelete_retriesWhatTheDriverRefuses(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var failures atomic.Int32
	w.Driver.Before = func(_ context.Context, rpc string, _ any) error {
		if rpc == "DeleteVolume" && failures.Add(1) < 3 {
			return csidriver.Fail(codes.FailedPrecondition, "it has snapshots")
		}
		return nil
	}
	w.run()
	w.event("Warning VolumeFailedDelete pvc-uid-a", "it has snapshots")
	w.gone()
}

// TestDelete_finalizersThatOthersChange is external-provisioner#1217: the list
// changes between reading and patching.
func TestDelete_finalizersThatOthersChange(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", released, func(pv *corev1.PersistentVolume) {
		pv.Finalizers = []string{"kubernetes.io/pv-protection", claim.ProvisionerFinalizer}
	}))
	w.Driver.AddVolume("id-pvc-uid-a", 1)
	var done atomic.Bool
	w.React("patch", "persistentvolumes", func(apiserver.Request) error {
		if !done.Swap(true) { // the controller-manager is faster
			w.Put(newVolume("a", released, terminating))
		}
		return nil
	})
	w.run()
	w.gone()
}

// TestPatchVolume_thatAnotherClientMadeUnnecessary: another client changes the finalizers
// while the patch is under way.
func TestPatchVolume_thatAnotherClientMadeUnnecessary(t *testing.T) {
	protection := func(pv *corev1.PersistentVolume) {
		terminating(pv)
		pv.Finalizers = []string{"kubernetes.io/pv-protection"}
	}
	for name, row := range map[string]struct{ before, after *corev1.PersistentVolume }{
		"deleted":   {newVolume("a", released), newVolume("a", released, protection)},
		"protected": {newVolume("a", free), newVolume("a")},
		"retained":  {newVolume("a", keeps), newVolume("a", keeps, free)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, newClass(), row.before)
			w.Driver.AddVolume("id-pvc-uid-a", 1)
			env := w.NewEnv()
			observer := &deletions{}
			controller := New(env, Options{Observer: observer})
			env.Set.Start(w.Context())
			if err := env.Set.Wait(w.Context()); err != nil {
				t.Fatal(err)
			}
			var patches atomic.Int32
			w.React("patch", "persistentvolumes", func(apiserver.Request) error {
				if patches.Add(1) == 1 {
					w.Put(row.after.DeepCopy())
				}
				return nil
			})
			if _, err := controller.syncVolume(w.Context(), "pvc-uid-a"); err != nil || patches.Load() != 1 {
				t.Errorf("%v after %d patches", err, patches.Load())
			}
			if got, want := observer.Load(), int32(w.Driver.Count("DeleteVolume")); got != want { //nolint:gosec // 0 or 1
				t.Errorf("the observer was notified of %d deletions; want %d", got, want)
			}
		})
	}
}

// deletions is an Observer that counts deletions.
type deletions struct{ atomic.Int32 }

func (*deletions) Created(string, []*csi.Topology)    {}
func (*deletions) Failed(string)                      {}
func (d *deletions) Deleted(*corev1.PersistentVolume) { d.Add(1) }

func TestUpkeep_finalizerFollowsThePolicy(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", keeps), newVolume("b", free))
	w.run()
	w.Eventually(func() error {
		if a, b := w.pv("pvc-uid-a").Finalizers, w.pv("pvc-uid-b").Finalizers; len(a) > 0 || len(b) != 1 {
			return fmt.Errorf("a (Retain) %v, b (Delete) %v", a, b)
		}
		return nil
	})
}

func TestDelete_aForbiddenPatchIsTold(t *testing.T) {
	w := newWorld(t, newClass(), newVolume("a", free))
	w.React("patch", "persistentvolumes", func(q apiserver.Request) error {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumes"), q.Name, errors.New("no right"))
	})
	env := w.NewEnv()
	controller := New(env, Options{})
	env.Set.Start(w.Context())
	if err := env.Set.Wait(w.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := controller.syncVolume(w.Context(), "pvc-uid-a"); err == nil || !strings.Contains(err.Error(), "no right") {
		t.Errorf("got %v", err)
	}
}
