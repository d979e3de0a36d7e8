package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPodStatus_isThatOfKubectl(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	statuses := func(states ...corev1.ContainerState) (all []corev1.ContainerStatus) {
		for _, state := range states {
			all = append(all, corev1.ContainerStatus{State: state})
		}
		return all
	}
	cases := []struct {
		status corev1.PodStatus
		want   string
	}{
		{corev1.PodStatus{Phase: corev1.PodRunning}, "Running"},
		{corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: statuses(waiting("ContainerCreating"))}, "ContainerCreating"},
		{corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: statuses(waiting("CrashLoopBackOff"))}, "CrashLoopBackOff"},
		{corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: statuses(ended(0, "Completed"))}, "Completed"},
		{corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: statuses(ended(3, ""))}, "ExitCode:3"},
		{corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, "Evicted"},
		{corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: statuses(waiting("PodInitializing"))}, "Init:0/2"},
		{corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: statuses(ended(0, ""), waiting("CrashLoopBackOff"))}, "Init:CrashLoopBackOff"},
		{corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: statuses(ended(0, ""), ended(1, "Error"))}, "Init:Error"},
	}
	for _, c := range cases {
		pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: make([]corev1.Container, 2)}, Status: c.status}
		if got := PodStatus(pod); got != c.want {
			t.Errorf("the status is %q, want %q", got, c.want)
		}
		pod.DeletionTimestamp = new(metav1.Now())
		if got := PodStatus(pod); got != "Terminating" {
			t.Errorf("while it is deleted the status is %q", got)
		}
	}
}
