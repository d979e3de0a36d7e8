package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driverName = "d.example"

func newClass(change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "class-1"}, Provisioner: driverName, Parameters: map[string]string{"tier": "a"},
	}
	for _, c := range change {
		c(class)
	}
	return class
}

func waitForConsumer(class *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
}

func retain(class *storagev1.StorageClass) {
	policy := corev1.PersistentVolumeReclaimRetain
	class.ReclaimPolicy = &policy
}

func parameters(pairs ...string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		for i := 0; i < len(pairs); i += 2 {
			class.Parameters[pairs[i]] = pairs[i+1]
		}
	}
}

func newClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "fast"
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now(),
			Annotations: map[string]string{provisionerAnnotation: driverName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
	for _, c := range change {
		c(pvc)
	}
	return pvc
}

func onNode(node string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations[selectedNodeAnnotation] = node }
}

func cloneOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: name}
	}
}

func restoreOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		group := claim.SnapshotGroup
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
	}
}

// bound is a claim with its PersistentVolume, as if made earlier.
func bound(name string) []runtime.Object {
	pvc := newClaim(name, func(p *corev1.PersistentVolumeClaim) {
		p.Spec.VolumeName, p.Status.Phase = "pvc-uid-"+name, corev1.ClaimBound
	})
	return []runtime.Object{pvc, newVolume(name)}
}

// newVolume is the PersistentVolume of bound.
func newVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-uid-" + name, Finalizers: []string{claim.ProvisionerFinalizer},
			Annotations: map[string]string{
				claim.ProvisionedByAnnotation: driverName, claim.DeletionSecretNameAnnotation: "", claim.DeletionSecretNamespaceAnnotation: "",
			},
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, StorageClassName: "fast",
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "id-pvc-uid-" + name}},
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	for _, c := range change {
		c(pv)
	}
	return pv
}

func released(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }

// world is a cluster with a provisioner.
type world struct {
	*apiserver.Cluster
	t testing.TB

	dead atomic.Pointer[atomic.Bool] // whether the process at work is dead

	takes time.Duration // a CreateVolume

	mu       sync.Mutex
	requests []*csi.CreateVolumeRequest
	answers  []func(*csi.CreateVolumeRequest) error // one per call; nil succeeds
}

func newWorld(t testing.TB, objects ...runtime.Object) *world {
	t.Helper()
	driver := csidriver.New(driverName)
	driver.Creation.Strict = true
	w := &world{t: t}
	driver.Before = w.before
	w.Cluster = apiserver.New(t, driver, objects...)
	return w
}

func (w *world) before(_ context.Context, rpc string, request any) error {
	if dead := w.dead.Load(); dead != nil && dead.Load() {
		return errors.New("the process is dead")
	}
	create, is := request.(*csi.CreateVolumeRequest)
	if rpc != "CreateVolume" || !is {
		return nil
	}
	time.Sleep(w.takes)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, create)
	if len(w.answers) == 0 {
		return nil
	}
	answer := w.answers[0]
	w.answers = w.answers[1:]
	if answer == nil {
		return nil
	}
	return answer(create)
}

// answer lines up what the next calls of CreateVolume fail with.
func (w *world) answer(errs ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, err := range errs {
		w.answers = append(w.answers, func(*csi.CreateVolumeRequest) error { return err })
	}
}

func (w *world) calls() []*csi.CreateVolumeRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// run starts a provisioner in a process of its own.
func (w *world) run(change ...func(*cluster.Env, *Options)) (*Controller, func()) {
	w.t.Helper()
	env := w.NewEnv()
	options := Options{ForgetAfter: time.Millisecond, SlowRetry: time.Hour}
	for _, c := range change {
		c(env, &options)
	}
	controller := New(env, options)
	return controller, w.Run(env, controller)
}

func (w *world) pv(name string) *corev1.PersistentVolume {
	pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pv
}

func (w *world) claimNow(name string) *corev1.PersistentVolumeClaim {
	pvc, err := w.Core.CoreV1().PersistentVolumeClaims("ns").Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pvc
}

// stored returns how many intents are stored.
func (w *world) stored() int { return len(storedIntents(w.t, w.Cluster)) }

// storedIntents reads all intents that are stored, as the process of another node sees
// them.
func storedIntents(t testing.TB, c *apiserver.Cluster) []intent.Unserved[volumeIntent] {
	t.Helper()
	observer := intent.New(intent.Options{
		ConfigMaps: c.Core.CoreV1().ConfigMaps(apiserver.Intents), Driver: driverName, Node: "observer",
	}, intent.Kind[volumeIntent]{Merge: merge, Split: split, Join: join})
	found, err := observer.Unserved(c.Context(), func(string) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// event waits for an event that contains all the texts.
func (w *world) event(texts ...string) {
	w.t.Helper()
	w.Happens(texts...)
}

// saved waits for a PersistentVolume.
func (w *world) saved(name string) *corev1.PersistentVolume {
	w.t.Helper()
	w.Eventually(func() error {
		if w.pv(name) == nil {
			return fmt.Errorf("no PersistentVolume %s", name)
		}
		return nil
	})
	return w.pv(name)
}

// gone waits until no PersistentVolume, no volume and no intent remain.
func (w *world) gone() {
	w.t.Helper()
	w.Eventually(func() error {
		list, err := w.Core.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if volumes := w.Driver.Volumes(); len(list.Items)+len(volumes)+w.stored() > 0 {
			return fmt.Errorf("remaining: %d PersistentVolumes, volumes %v, %d intents", len(list.Items), volumes, w.stored())
		}
		return nil
	})
}

// complete waits until each volume has its PersistentVolume and no intent remains.
func (w *world) complete(volumes int) {
	w.t.Helper()
	w.Eventually(func() error {
		list, err := w.Core.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		handles := map[string]bool{}
		for _, pv := range list.Items {
			handles[pv.Spec.CSI.VolumeHandle] = true
		}
		made := slices.Collect(maps.Values(w.Driver.Volumes()))
		if len(list.Items) != volumes || len(made) != volumes || w.stored() != 0 {
			return fmt.Errorf("%d PersistentVolumes, volumes %v, %d intents", len(list.Items), made, w.stored())
		}
		for _, id := range made {
			if !handles[id] {
				return fmt.Errorf("volume %s has no PersistentVolume", id)
			}
		}
		return nil
	})
}

// controllerManager binds claims and releases volumes, as Kubernetes does.
func (w *world) controllerManager() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			w.bind(ctx)
			time.Sleep(5 * time.Millisecond)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	w.t.Cleanup(stop)
	return stop
}

func (w *world) bind(ctx context.Context) {
	list, err := w.Core.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		pv := &list.Items[i]
		phase := corev1.VolumeReleased
		pvc, err := w.Core.CoreV1().PersistentVolumeClaims(pv.Spec.ClaimRef.Namespace).Get(ctx, pv.Spec.ClaimRef.Name, metav1.GetOptions{})
		if err == nil && pvc.UID == pv.Spec.ClaimRef.UID {
			phase = corev1.VolumeBound
			if pvc.Spec.VolumeName == "" {
				pvc.Spec.VolumeName = pv.Name
				_, _ = w.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace).Update(ctx, pvc, metav1.UpdateOptions{})
			}
		} else if err != nil && !apierrors.IsNotFound(err) {
			continue
		}
		if pv.Status.Phase != phase {
			pv.Status.Phase = phase
			_, _ = w.Core.CoreV1().PersistentVolumes().UpdateStatus(ctx, pv, metav1.UpdateOptions{})
		}
	}
}
