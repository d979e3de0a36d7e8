package status

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// PodReady is how many of a pod's containers are ready.
func PodReady(pod *corev1.Pod) string {
	ready := 0
	for _, status := range pod.Status.ContainerStatuses {
		if status.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))
}

// PodStatus is the phase, or what keeps the pod from it, as kubectl has it.
func PodStatus(pod *corev1.Pod) string {
	reason := string(pod.Status.Phase)
	if pod.Status.Reason != "" {
		reason = pod.Status.Reason
	}
	if starting := initReason(pod); starting != "" {
		return deletedOr(pod, starting)
	}
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		if text := containerReason(pod.Status.ContainerStatuses[i].State); text != "" {
			reason = text
		}
	}
	return deletedOr(pod, reason)
}

func deletedOr(pod *corev1.Pod, status string) string {
	if pod.DeletionTimestamp != nil {
		return "Terminating"
	}
	return status
}

// initReason returns which init container the pod is at, "" when none.
func initReason(pod *corev1.Pod) string {
	total := len(pod.Spec.InitContainers)
	for i, status := range pod.Status.InitContainerStatuses {
		state := status.State
		switch {
		case state.Terminated != nil && state.Terminated.ExitCode == 0, status.Started != nil && *status.Started:
			continue
		case state.Terminated != nil:
			return "Init:" + containerReason(state)
		case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
			return "Init:" + state.Waiting.Reason
		}
		return fmt.Sprintf("Init:%d/%d", i, total)
	}
	return ""
}

func containerReason(state corev1.ContainerState) string {
	switch {
	case state.Waiting != nil:
		return state.Waiting.Reason
	case state.Terminated == nil:
		return ""
	case state.Terminated.Reason != "":
		return state.Terminated.Reason
	case state.Terminated.Signal != 0:
		return "Signal:" + strconv.Itoa(int(state.Terminated.Signal))
	}
	return "ExitCode:" + strconv.Itoa(int(state.Terminated.ExitCode))
}

// ClaimsOf returns the names of the claims that a pod uses.
func ClaimsOf(pod *corev1.Pod) (names []string) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return names
}

// Restarts counts the restarts of a pod's containers.
func Restarts(pod *corev1.Pod) (count int32) {
	for _, status := range pod.Status.ContainerStatuses {
		count += status.RestartCount
	}
	return count
}

func podEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func podLevel(pod *corev1.Pod) Level {
	switch {
	case pod.DeletionTimestamp != nil:
		return Busy
	case pod.Status.Phase == corev1.PodSucceeded:
		return Quiet
	case pod.Status.Phase == corev1.PodFailed:
		return Bad
	case pod.Status.Phase != corev1.PodRunning:
		return Busy
	}
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Waiting != nil {
			return Bad // such as CrashLoopBackOff
		}
		if !status.Ready {
			return Busy
		}
	}
	return Good
}
