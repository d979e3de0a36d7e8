package claim

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

// world is a claim, its volume and the disk behind it, with a user, a
// controller that may die anywhere, a driver that fails or rounds up, and a
// kubelet.
type world struct {
	pvc    *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
	disk   int64
	// late are sizes of calls with an uncertain end: the driver may still do them.
	late   []int64
	failed bool // the controller's memory
	node   bool
	// largest is what the user ever asked for at most.
	largest int64
}

const gi = 1 << 30

func newWorld(node bool) *world {
	w := &world{pvc: claimOfSizes("1Gi", "1Gi", "", ""), volume: &corev1.PersistentVolume{}, disk: 1, node: node, largest: 1}
	w.volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size("1Gi")}
	return w
}

func inGi(list corev1.ResourceList) int64 {
	q := list[corev1.ResourceStorage]
	return q.Value() / gi
}

func ofGi(n int64) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(n*gi, resource.BinarySI)}
}

// ask is the user's: a request may be raised, or lowered to above what was granted.
func (w *world) ask(t *rapid.T) {
	n := rapid.Int64Range(1, 20).Draw(t, "size")
	if n <= inGi(w.pvc.Status.Capacity) {
		return
	}
	w.pvc.Spec.Resources.Requests = ofGi(n)
	w.largest = max(w.largest, n)
}

// sync is one turn of the controller, which may die after each of its writes.
func (w *world) sync(t *rapid.T) {
	r := ResizeOf(w.pvc, w.volume)
	r.Failed = w.failed
	target, ok := r.Target()
	if !r.Asked() || !ok {
		return
	}
	desired := target.Value() / gi
	if desired > w.largest || desired <= 0 {
		t.Fatalf("the target is %d, and the user never asked for more than %d: %+v", desired, w.largest, r)
	}
	BeginResize(w.pvc, target, time.Time{})
	if w.dies(t) {
		return
	}
	w.failed = false
	switch outcome := rapid.SampledFrom([]string{"done", "done", "uncertain", "final", "infeasible", "in use"}).Draw(t, "answer"); outcome {
	case "done":
		w.disk = max(w.disk, desired+rapid.Int64Range(0, 1).Draw(t, "rounding"))
		w.finish(t)
	case "uncertain":
		w.late = append(w.late, desired)
		if !w.dies(t) {
			FailResize(w.pvc, OutcomeUncertain, "", time.Time{})
		}
	default:
		outcomes := map[string]Outcome{"final": OutcomeFinal, "infeasible": OutcomeInfeasible, "in use": OutcomeInUse}
		w.failed = true
		if !w.dies(t) {
			FailResize(w.pvc, outcomes[outcome], outcome, time.Time{})
		}
	}
}

func (w *world) finish(t *rapid.T) {
	if w.dies(t) {
		return
	}
	w.volume.Spec.Capacity = ofGi(w.disk)
	if w.dies(t) {
		return
	}
	if w.node {
		AwaitNode(w.pvc, time.Time{})
		return
	}
	FinishResize(w.pvc, w.volume.Spec.Capacity[corev1.ResourceStorage])
}

// dies forgets what only memory knew.
func (w *world) dies(t *rapid.T) bool {
	if !rapid.Custom(func(t *rapid.T) bool { return rapid.IntRange(0, 9).Draw(t, "n") == 0 }).Draw(t, "dies") {
		return false
	}
	w.failed = false
	return true
}

func (w *world) kubelet(t *rapid.T) {
	state := w.pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if state != nodePending && state != nodeInProgress {
		return
	}
	switch rapid.SampledFrom([]string{"begins", "done", "done", "infeasible"}).Draw(t, "kubelet") {
	case "begins":
		setResizeState(w.pvc, nodeInProgress)
	case "done":
		FinishResize(w.pvc, w.volume.Spec.Capacity[corev1.ResourceStorage])
	case "infeasible":
		setResizeState(w.pvc, nodeInfeasible)
	}
}

// driver performs late what a call that timed out had requested.
func (w *world) driver() {
	if len(w.late) > 0 {
		w.disk = max(w.disk, w.late[0])
		w.late = w.late[1:]
	}
}

func (w *world) check(t *rapid.T) {
	if got := inGi(w.pvc.Status.AllocatedResources); got > w.largest {
		t.Fatalf("allocated %d, more than the %d ever asked for", got, w.largest)
	}
	if granted := inGi(w.pvc.Status.Capacity); granted > w.disk {
		t.Fatalf("the claim says %d and the disk has %d", granted, w.disk)
	}
}

// TestResize_neverAsksForMoreThanTheUserDid drives random orders of requests,
// answers and deaths, and everything converges when the driver behaves.
func TestResize_neverAsksForMoreThanTheUserDid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(rapid.Bool().Draw(t, "node part"))
		t.Repeat(map[string]func(*rapid.T){
			"ask": w.ask, "sync": w.sync, "kubelet": w.kubelet, "driver": func(*rapid.T) { w.driver() }, "": w.check,
		})
		w.converge(t)
	})
}

// converge lets every component behave until nothing is left to do.
func (w *world) converge(t *rapid.T) {
	for range 6 {
		r := ResizeOf(w.pvc, w.volume)
		r.Failed = w.failed
		if target, ok := r.Target(); r.Asked() && ok {
			BeginResize(w.pvc, target, time.Time{})
			w.disk = max(w.disk, target.Value()/gi)
			w.volume.Spec.Capacity = ofGi(w.disk)
			AwaitNode(w.pvc, time.Time{})
		}
		if state := w.pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; state == nodePending || state == nodeInProgress {
			FinishResize(w.pvc, w.volume.Spec.Capacity[corev1.ResourceStorage])
		}
	}
	w.check(t)
	if ResizeOf(w.pvc, w.volume).Asked() {
		t.Fatalf("does not converge: %+v %+v", w.pvc.Spec.Resources, w.pvc.Status)
	}
}
