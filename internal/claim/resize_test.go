package claim

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	controllerInProgress = corev1.PersistentVolumeClaimControllerResizeInProgress
	controllerInfeasible = corev1.PersistentVolumeClaimControllerResizeInfeasible
	nodePending          = corev1.PersistentVolumeClaimNodeResizePending
	nodeInProgress       = corev1.PersistentVolumeClaimNodeResizeInProgress
	nodeInfeasible       = corev1.PersistentVolumeClaimNodeResizeInfeasible
)

func size(text string) resource.Quantity {
	if text == "" {
		return resource.Quantity{}
	}
	return resource.MustParse(text)
}

// TestResize_target is the table of KEP 1790: volume against request, and state.
func TestResize_target(t *testing.T) {
	for _, c := range []struct {
		name                       string
		desired, volume, allocated string
		state                      corev1.ClaimResourceStatus
		nodePending                bool
		nodeOnly, failed           bool
		want                       string // empty: nothing to do
	}{
		{name: "fresh", desired: "5G", volume: "3G", want: "5G"},
		{name: "fresh, grown before", desired: "5G", volume: "3G", allocated: "3G", want: "5G"},
		{name: "lowered after infeasible", desired: "5G", volume: "3G", allocated: "10G", state: controllerInfeasible, want: "5G"},
		{name: "lowered after a final error", desired: "5G", volume: "3G", allocated: "10G", state: controllerInProgress, failed: true, want: "5G"},
		{name: "lowered while the driver may work", desired: "5G", volume: "3G", allocated: "10G", state: controllerInProgress, want: "10G"},
		{name: "raised while the driver may work", desired: "12G", volume: "3G", allocated: "10G", state: controllerInProgress, want: "10G"},
		{name: "in progress, but unknown at what", desired: "5G", volume: "3G", state: controllerInProgress, want: "5G"},
		{name: "raised while the node works", desired: "10G", volume: "3G", allocated: "3G", state: nodePending},
		{name: "raised while the node has begun", desired: "10G", volume: "3G", allocated: "3G", state: nodeInProgress},
		{name: "the node waits for a volume that did not grow", desired: "10G", volume: "3G", allocated: "5G", state: nodePending, want: "5G"},
		{name: "the node waits, but unknown for what", desired: "10G", volume: "3G", state: nodePending, want: "10G"},
		{name: "raised after the node gave up", desired: "12G", volume: "10G", allocated: "10G", state: nodeInfeasible, want: "10G"},
		{name: "the node gave up, but unknown at what", desired: "12G", volume: "10G", state: nodeInfeasible, want: "12G"},

		{name: "the node's turn", desired: "5G", volume: "5G", allocated: "5G", state: nodePending},
		{name: "the node is at it", desired: "5G", volume: "5G", allocated: "5G", state: nodeInProgress},
		{name: "lowered after the node gave up", desired: "5G", volume: "10G", allocated: "10G", state: nodeInfeasible, want: "10G"},
		{name: "lowered after the node gave up, node-only driver", desired: "5G", volume: "10G", allocated: "10G", state: nodeInfeasible, nodeOnly: true, want: "5G"},
		{name: "died before the status", desired: "5G", volume: "5G", allocated: "5G", state: controllerInProgress, want: "5G"},
		{name: "died before the status, then lowered", desired: "5G", volume: "10G", allocated: "10G", state: controllerInProgress, want: "10G"},
		{name: "the same after a final error", desired: "5G", volume: "10G", allocated: "10G", state: controllerInProgress, failed: true, want: "10G"},
		{name: "infeasible although grown", desired: "5G", volume: "10G", allocated: "10G", state: controllerInfeasible, want: "10G"},
		{name: "infeasible although grown, unknown at what", desired: "5G", volume: "10G", state: controllerInfeasible, want: "5G"},
		{name: "grown by hand after an old expansion", desired: "5G", volume: "10G", allocated: "4G", want: "4G"},
		{name: "grown by hand", desired: "5G", volume: "10G", want: "5G"},
		{name: "an old controller left it to the node", desired: "5G", volume: "5G", nodePending: true},
	} {
		r := Resize{
			Desired: size(c.desired), Volume: size(c.volume), Allocated: size(c.allocated), State: c.state,
			NodePending: c.nodePending, NodeOnly: c.nodeOnly, Failed: c.failed,
		}
		target, ok := r.Target()
		if ok != (c.want != "") {
			t.Errorf("%s: something to do: %t", c.name, ok)
			continue
		}
		if want := size(c.want); ok && target.Cmp(want) != 0 {
			t.Errorf("%s: target %s, want %s", c.name, target.String(), want.String())
		}
	}
}

// answer is what a driver says to one attempt.
type answer struct {
	outcome Outcome // counts when failed
	failed  bool
	node    bool
}

// attempt does to the objects what the controller does in one go, and reports
// whether the driver was to be called.
func attempt(pvc *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, r Resize, a answer) (called bool) {
	target, ok := r.Target()
	if !ok {
		return false
	}
	now := time.Now()
	BeginResize(pvc, target, now)
	if a.failed {
		FailResize(pvc, a.outcome, "no", now)
		return true
	}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: target}
	if a.node || r.NodeOnly {
		AwaitNode(pvc, now)
		return !r.NodeOnly
	}
	FinishResize(pvc, target)
	return true
}

func claimOfSizes(desired, granted, allocated string, state corev1.ClaimResourceStatus) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{}
	pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size(desired)}
	pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: size(granted)}
	if allocated != "" {
		pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size(allocated)}
	}
	if state != "" {
		setResizeState(pvc, state)
	}
	return pvc
}

// TestResize_attempts is one row per situation: spec, status, allocated, state
// and volume before; the driver's answer; call, state and allocated after.
func TestResize_attempts(t *testing.T) {
	fail := func(o Outcome) answer { return answer{outcome: o, failed: true} }
	ok := answer{node: true}
	for _, c := range []struct {
		desired, granted, allocated string
		state                       corev1.ClaimResourceStatus
		volume                      string
		failed, nodeOnly            bool
		answer                      answer
		called                      bool
		stateAfter                  corev1.ClaimResourceStatus
		allocatedAfter              string
	}{
		{"2G", "1G", "", "", "1G", false, false, ok, true, nodePending, "2G"},
		{"1G", "1G", "", "", "1G", false, false, ok, true, nodePending, "1G"},
		{"5G", "3G", "10G", controllerInfeasible, "3G", false, false, ok, true, nodePending, "5G"},
		{"5G", "3G", "10G", controllerInProgress, "3G", true, false, ok, true, nodePending, "5G"},
		{"5G", "3G", "10G", controllerInProgress, "3G", true, false, fail(OutcomeInUse), true, controllerInProgress, "5G"},
		{"5G", "3G", "10G", controllerInProgress, "3G", true, false, fail(OutcomeInfeasible), true, controllerInfeasible, "5G"},
		{"5G", "3G", "10G", controllerInProgress, "3G", false, false, ok, true, nodePending, "10G"},
		{"5G", "3G", "10G", nodeInfeasible, "10G", false, true, ok, false, nodePending, "5G"},
		{"1G", "1G", "1G", nodePending, "1G", false, false, ok, false, nodePending, "1G"},
		{"2G", "1G", "", "", "1G", false, false, answer{}, true, "", "2G"},
		{"2G", "1G", "2G", nodeInfeasible, "2G", false, false, ok, true, nodePending, "2G"},
		{"10G", "1G", "3G", nodePending, "3G", false, false, ok, false, nodePending, "3G"},
		{"10G", "1G", "3G", nodeInProgress, "3G", false, false, ok, false, nodeInProgress, "3G"},
		// Ours.
		{"2G", "1G", "2G", controllerInfeasible, "1G", false, false, fail(OutcomeUncertain), true, controllerInProgress, "2G"},
		{"2G", "1G", "2G", controllerInfeasible, "1G", false, false, fail(OutcomeFinal), true, controllerInProgress, "2G"},
		{"2G", "1G", "2G", controllerInfeasible, "1G", false, false, fail(OutcomeInfeasible), true, controllerInfeasible, "2G"},
		{"2G", "1G", "", "", "1G", false, false, fail(OutcomeUncertain), true, controllerInProgress, "2G"},
		{"2G", "1G", "", "", "1G", false, true, ok, false, nodePending, "2G"},
	} {
		pvc := claimOfSizes(c.desired, c.granted, c.allocated, c.state)
		volume := &corev1.PersistentVolume{}
		volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size(c.volume)}
		r := ResizeOf(pvc, volume)
		r.Failed, r.NodeOnly = c.failed, c.nodeOnly
		called := attempt(pvc, volume, r, c.answer)
		after := pvc.Status.AllocatedResources[corev1.ResourceStorage]
		if want := size(c.allocatedAfter); called != c.called || after.Cmp(want) != 0 ||
			pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != c.stateAfter {
			t.Errorf("%+v:\ncalled %t, state %q, allocated %s", c, called,
				pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage], after.String())
		}
	}
}

func conditionsOf(pvc *corev1.PersistentVolumeClaim) map[corev1.PersistentVolumeClaimConditionType]string {
	found := map[corev1.PersistentVolumeClaimConditionType]string{}
	for _, c := range pvc.Status.Conditions {
		found[c.Type] = c.Message
	}
	return found
}

func TestBeginResize_keepsWhatTheLastAttemptAtTheSameSizeLeft(t *testing.T) {
	start := time.Now().Add(-time.Hour)
	pvc := claimOfSizes("5G", "3G", "", "")
	pvc.Annotations = map[string]string{NodeExpansionNotRequiredAnnotation: "true"}
	pvc.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue}}
	BeginResize(pvc, size("5G"), start)
	FailResize(pvc, OutcomeFinal, "first", start)
	if _, kept := pvc.Annotations[NodeExpansionNotRequiredAnnotation]; kept {
		t.Error("the annotation outlives the expansion it was about")
	}
	BeginResize(pvc, size("5G"), time.Now())
	if got := conditionsOf(pvc); len(got) != 3 || got[corev1.PersistentVolumeClaimControllerResizeError] != "first" {
		t.Errorf("after the same size again: %v", got)
	}
	if since := Condition(pvc, corev1.PersistentVolumeClaimResizing).LastTransitionTime.Time; !since.Equal(start) {
		t.Errorf("resizing since %s, not since %s", since, start)
	}
	BeginResize(pvc, size("4G"), time.Now())
	if got := conditionsOf(pvc); len(got) != 2 || Condition(pvc, corev1.PersistentVolumeClaimUnused) == nil {
		t.Errorf("after another size: %v", got)
	}
}

func TestFailResize_leavesTheConditionWhileTheEndIsUncertain(t *testing.T) {
	pvc := claimOfSizes("5G", "3G", "", "")
	BeginResize(pvc, size("5G"), time.Now())
	FailResize(pvc, OutcomeUncertain, "timed out", time.Now())
	if Condition(pvc, corev1.PersistentVolumeClaimControllerResizeError) != nil {
		t.Error("a timeout is called an error")
	}
}

func TestAwaitNode_saysWhatIsLeft(t *testing.T) {
	pvc := claimOfSizes("5G", "3G", "", "")
	BeginResize(pvc, size("5G"), time.Now())
	FailResize(pvc, OutcomeFinal, "no", time.Now())
	AwaitNode(pvc, time.Now())
	got := conditionsOf(pvc)
	_, resizing := got[corev1.PersistentVolumeClaimResizing]
	_, pending := got[corev1.PersistentVolumeClaimFileSystemResizePending]
	if len(got) != 2 || !resizing || !pending {
		t.Errorf("conditions: %v", got)
	}
}

func TestFinishResize_leavesTheAllocatedSize(t *testing.T) {
	pvc := claimOfSizes("5G", "3G", "", "")
	BeginResize(pvc, size("5G"), time.Now())
	FinishResize(pvc, size("6G")) // the driver rounded up
	granted, allocated := pvc.Status.Capacity[corev1.ResourceStorage], pvc.Status.AllocatedResources[corev1.ResourceStorage]
	if granted.String() != "6G" || allocated.String() != "5G" || len(pvc.Status.Conditions) > 0 || len(pvc.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("%+v", pvc.Status)
	}
	if pvc.Annotations[NodeExpansionNotRequiredAnnotation] != "true" {
		t.Error("the kubelets are not informed that there is nothing to do")
	}
}

func TestCheckExpanded(t *testing.T) {
	if err := CheckExpanded("v", size("5G"), 5_000_000_000); err != nil {
		t.Error(err)
	}
	for _, small := range []int64{4_999_999_999, 0, -1} {
		err := CheckExpanded("v", size("5G"), small)
		if !errors.Is(err, ErrDriverFailed) || Classify(CallExpand, err) != OutcomeFinal {
			t.Errorf("%d bytes: %v", small, err)
		}
	}
}
