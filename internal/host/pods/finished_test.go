package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Another pod may wait for the volumes of a finished pod and watches its
// status, which must change when they are unmounted, also after several
// attempts, or another process.
func TestStatus_ofAFinishedPodChangesWhenItsVolumesAreGone(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	setCondition(&pod.Status, conditionSandboxReady, true, "", "", time.Now())
	failed := observed{view: view{Finished: true, Now: time.Now()}}
	if !sameStatus(pod.Status, statusOf(pod, failed)) {
		t.Error("it changes before the volumes are gone")
	}
	gone := observed{view: view{Finished: true, Unmounted: true, Now: time.Now()}}
	if pod.Status = statusOf(pod, gone); isTrue(pod.Status, conditionSandboxReady) {
		t.Error("the status does not show that the volumes are gone")
	}
	if !sameStatus(pod.Status, statusOf(pod, failed)) { // the next process
		t.Error("it comes back")
	}
}
