package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	human "k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func podKinds() []tableKind {
	return []tableKind{{bare("pods"), []string{"po"}, []column{
		{"NAME", false, nameCell},
		{"READY", false, of(readyOf)},
		{"STATUS", false, of(statusOf)},
		{"RESTARTS", false, restartsCell},
		{"AGE", false, ageCell},
		{"CLAIMS", true, of(claimsOf)},
		{"HOLDER", true, of(func(p *corev1.Pod) string { return orNone(p.Annotations[holderAnnotation]) })},
	}}}
}

// holderAnnotation names who runs a pod that the host only mounts volumes for.
const holderAnnotation = "holdfast.dev/holder"

func readyOf(pod *corev1.Pod) string {
	ready := 0
	for _, status := range pod.Status.ContainerStatuses {
		if status.Ready {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, len(pod.Spec.Containers))
}

// statusOf is the phase, or what keeps the pod from it, as kubectl has it.
func statusOf(pod *corev1.Pod) string {
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

// initReason says which init container the pod is at, "" when none.
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

func restartsCell(o store.Object, now time.Time) string {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return ""
	}
	var restarts int32
	var last time.Time
	for _, status := range pod.Status.ContainerStatuses {
		restarts += status.RestartCount
		if ended := status.LastTerminationState.Terminated; ended != nil && ended.FinishedAt.After(last) {
			last = ended.FinishedAt.Time
		}
	}
	if restarts == 0 || last.IsZero() {
		return strconv.Itoa(int(restarts))
	}
	return fmt.Sprintf("%d (%s ago)", restarts, human.HumanDuration(now.Sub(last)))
}

func claimsOf(pod *corev1.Pod) string {
	var names []string
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, pod.Name+"-"+volume.Name)
		}
	}
	return orNone(strings.Join(names, ","))
}
