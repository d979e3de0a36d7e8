package resize

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driverName = "growing.example.com"
	gi         = 1 << 30

	expandRPC = "ControllerExpandVolume"
	modifyRPC = "ControllerModifyVolume"
)

// world is a cluster with a claim "shop/data" of 1Gi, bound to PersistentVolume
// "pv-1" of a driver that expands and modifies, and a controller when run.
type world struct {
	*apiserver.Cluster
	t      *testing.T
	driver *csidriver.Driver

	mu       sync.Mutex
	requests []any
	at       []time.Time        // of the requests
	answers  map[string][]error // by RPC: the next answers; nil is the driver's own
	forever  map[string]error
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldOf(t, driverName, append([]runtime.Object{dataVolume(), dataClaim()}, objects...)...)
}

func newWorldOf(t *testing.T, name string, objects ...runtime.Object) *world {
	t.Helper()
	driver := csidriver.New(name)
	driver.Controller = append(driver.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	driver.AddVolume("handle-1", gi)
	w := &world{t: t, driver: driver, answers: map[string][]error{}, forever: map[string]error{}}
	driver.Before = w.before
	w.Cluster = apiserver.New(t, driver, objects...)
	return w
}

// before remembers the requests and gives the answers that a test sets.
func (w *world) before(_ context.Context, rpc string, request any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rpc != expandRPC && rpc != modifyRPC {
		return nil
	}
	w.requests, w.at = append(w.requests, request), append(w.at, time.Now())
	if next := w.answers[rpc]; len(next) > 0 {
		w.answers[rpc] = next[1:]
		return next[0]
	}
	return w.forever[rpc]
}

// answer sets the next answers of an RPC.
func (w *world) answer(rpc string, answers ...error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers[rpc] = answers
}

// always sets every further answer of an RPC; nil is the driver's own.
func (w *world) always(rpc string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forever[rpc] = err
}

// asked are the sizes in GiB and the parameters of the calls so far.
func (w *world) asked() (sizes []int64, parameters []map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, request := range w.requests {
		switch request := request.(type) {
		case *csi.ControllerExpandVolumeRequest:
			sizes = append(sizes, request.GetCapacityRange().GetRequiredBytes()/gi)
		case *csi.ControllerModifyVolumeRequest:
			parameters = append(parameters, request.GetMutableParameters())
		}
	}
	return sizes, parameters
}

func (w *world) lastRequest() any {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[len(w.requests)-1]
}

func (w *world) run(options ...Options) (stop func()) {
	w.t.Helper()
	_, stop = w.runIn(w.Env, options...)
	return stop
}

func (w *world) runIn(env *cluster.Env, options ...Options) (*Controller, func()) {
	w.t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	c := New(env, o)
	return c, w.Run(env, c)
}

// crashAt runs a controller until it passes a point, and no further.
func (w *world) crashAt(point string) {
	w.t.Helper()
	set, err := failpoint.Parse(point + "=error")
	if err != nil {
		w.t.Fatal(err)
	}
	env := w.NewEnv()
	env.Failpoints, env.Retry = set, work.Retry{Start: time.Hour, Max: time.Hour}
	c, stop := w.runIn(env)
	w.Eventually(func() error {
		if c.queue.Failures("shop/data") == 0 {
			return fmt.Errorf("%s was not passed", point)
		}
		return nil
	})
	stop()
}

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n*gi, resource.BinarySI) }

func storage(n int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: quantity(n)}
}

func dataVolume(change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: storage(1), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "uid-data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "handle-1", FSType: "xfs",
			}},
		},
	}
	for _, f := range change {
		f(pv)
	}
	return pv
}

func dataClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid-data"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1", Resources: corev1.VolumeResourceRequirements{Requests: storage(1)}},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: storage(1)},
	}
	for _, f := range change {
		f(pvc)
	}
	return pvc
}

// asking is a claim that asks for a size in GiB.
func asking(n int64) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.Resources.Requests = storage(n) }
}

// wanting is a claim with a desired class; "" is none.
func wanting(class string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.VolumeAttributesClassName = &class
		if class == "" {
			pvc.Spec.VolumeAttributesClassName = nil
		}
	}
}

func class(name string, parameters ...string) *storagev1.VolumeAttributesClass {
	vac := &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driverName, Parameters: map[string]string{}}
	for _, p := range append([]string{"class=" + name}, parameters...) {
		key, value, _ := strings.Cut(p, "=")
		vac.Parameters[key] = value
	}
	return vac
}

func (w *world) claim() *corev1.PersistentVolumeClaim {
	w.t.Helper()
	pvc, err := w.Core.CoreV1().PersistentVolumeClaims("shop").Get(w.t.Context(), "data", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pvc
}

func (w *world) volume() *corev1.PersistentVolume {
	w.t.Helper()
	pv, err := w.Core.CoreV1().PersistentVolumes().Get(w.t.Context(), "pv-1", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pv
}

// change edits the claim as another client would: with the version it read.
func (w *world) change(f func(*corev1.PersistentVolumeClaim), subresources ...string) {
	w.t.Helper()
	w.Eventually(func() error {
		pvc := w.claim()
		f(pvc)
		api := w.Core.CoreV1().PersistentVolumeClaims("shop")
		if len(subresources) > 0 {
			_, err := api.UpdateStatus(w.t.Context(), pvc, metav1.UpdateOptions{})
			return err
		}
		_, err := api.Update(w.t.Context(), pvc, metav1.UpdateOptions{})
		return err
	})
}

func state(pvc *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

func inGi(list corev1.ResourceList) int64 {
	q := list[corev1.ResourceStorage]
	return q.Value() / gi
}

// reaches waits for a state of resizing, "" for none, with a size allocated.
func (w *world) reaches(want corev1.ClaimResourceStatus, allocated int64) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	w.Eventually(func() error {
		if pvc := w.claim(); state(pvc) != want || inGi(pvc.Status.AllocatedResources) != allocated {
			return fmt.Errorf("state %q, allocated %d", state(pvc), inGi(pvc.Status.AllocatedResources))
		}
		return nil
	})
	return w.claim()
}

// kubelet grows the filesystem.
func (w *world) kubelet() {
	w.t.Helper()
	size := w.volume().Spec.Capacity
	w.change(func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Status.Capacity = size
		delete(pvc.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
		pvc.Status.Conditions = nil
	}, "status")
}

// hasEvent waits for an event of a reason whose text contains the words.
func (w *world) hasEvent(reason, words string) {
	w.t.Helper()
	w.Eventually(func() error {
		if w.countEvents(reason, words) == 0 {
			return fmt.Errorf("no event %s with %q", reason, words)
		}
		return nil
	})
}

func (w *world) countEvents(reason, words string) (n int) {
	for _, event := range w.Events() {
		if strings.Contains(event, " "+reason+" shop/data: ") && strings.Contains(event, words) {
			n++
		}
	}
	return n
}

// called waits until an RPC was made a number of times.
func (w *world) called(rpc string, times int) {
	w.t.Helper()
	w.Eventually(func() error {
		if n := w.driver.Count(rpc); n < times {
			return fmt.Errorf("%s was called %d times", rpc, n)
		}
		return nil
	})
}

// staysAt fails if an RPC is called again.
func (w *world) staysAt(rpc string, times int) {
	w.t.Helper()
	w.Never(150*time.Millisecond, func() error {
		if n := w.driver.Count(rpc); n != times {
			return fmt.Errorf("%s was called %d times, not %d", rpc, n, times)
		}
		return nil
	})
}

// paused fails unless a pause was made between a call, from 0, and the last one. (What
// it is like during the pause, a slow test does not see.)
func (w *world) paused(from, last int, pause time.Duration) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.at) != last+1 {
		w.t.Fatalf("%d calls, not %d", len(w.at), last+1)
	}
	if made := w.at[last].Sub(w.at[from]); made < pause {
		w.t.Errorf("it was tried again after %v, not %v", made, pause)
	}
}

// writes are the requests that changed something, "verb resource[/status]",
// without those of the test.
func (w *world) writes() []string {
	var all []string
	for _, q := range w.Writes() {
		if q.Verb != "patch" {
			continue // the test updates, the controller patches
		}
		text := q.Verb + " " + q.Resource
		if q.Subresource != "" {
			text += "/" + q.Subresource
		}
		all = append(all, text)
	}
	return all
}

func (w *world) wroteOnly(want ...string) {
	w.t.Helper()
	if got := w.writes(); !slices.Equal(got, want) {
		w.t.Errorf("wrote %q, want %q", got, want)
	}
}

func condition(pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaimCondition {
	for i := range pvc.Status.Conditions {
		if pvc.Status.Conditions[i].Type == kind {
			return &pvc.Status.Conditions[i]
		}
	}
	return nil
}

// saying waits for a condition whose message contains the words.
func (w *world) saying(kind corev1.PersistentVolumeClaimConditionType, words string) {
	w.t.Helper()
	w.Eventually(func() error {
		if c := condition(w.claim(), kind); c == nil || !strings.Contains(c.Message, words) {
			return fmt.Errorf("condition %s: %+v", kind, c)
		}
		return nil
	})
}

// without turns a driver's capability off.
func without[T comparable](list []T, gone ...T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(one T) bool { return slices.Contains(gone, one) })
}
