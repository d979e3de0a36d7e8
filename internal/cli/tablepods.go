package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	human "k8s.io/apimachinery/pkg/util/duration"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status"
)

func podKinds() []tableKind {
	return []tableKind{{bare("pods"), []string{"po"}, []column{
		{"NAME", false, nameCell},
		{"READY", false, of(status.PodReady)},
		{"STATUS", false, of(status.PodStatus)},
		{"RESTARTS", false, restartsCell},
		{"AGE", false, ageCell},
		{"CLAIMS", true, of(claimsOf)},
		{"HOLDER", true, of(func(p *corev1.Pod) string { return orNone(p.Annotations[holderAnnotation]) })},
	}}}
}

// holderAnnotation names who runs a pod that the host only mounts volumes for.
const holderAnnotation = "holdfast.dev/holder"

func restartsCell(o store.Object, now time.Time) string {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return ""
	}
	restarts := status.Restarts(pod)
	var last time.Time
	for _, container := range pod.Status.ContainerStatuses {
		if ended := container.LastTerminationState.Terminated; ended != nil && ended.FinishedAt.After(last) {
			last = ended.FinishedAt.Time
		}
	}
	if restarts == 0 || last.IsZero() {
		return strconv.Itoa(int(restarts))
	}
	return fmt.Sprintf("%d (%s ago)", restarts, human.HumanDuration(now.Sub(last)))
}

func claimsOf(pod *corev1.Pod) string { return orNone(strings.Join(status.ClaimsOf(pod), ",")) }
