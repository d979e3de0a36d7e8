package pods

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// The reasons that the kubelet gives.
const (
	reasonCreating        = "ContainerCreating"
	reasonInitializing    = "PodInitializing"
	reasonCrashLoop       = "CrashLoopBackOff"
	reasonConfigError     = "CreateContainerConfigError"
	reasonRunError        = "RunContainerError"
	reasonNotReady        = "ContainersNotReady"
	reasonNotInitialized  = "ContainersNotInitialized"
	reasonPodCompleted    = "PodCompleted"
	reasonPodFailed       = "PodFailed"
	reasonWaitingVolumes  = "WaitingForVolumes"
	containerIDScheme     = "holdfast://"
	maximumMessage        = 1 << 10
	conditionSandboxReady = corev1.PodReadyToStartContainers
)

// observed is the input of a status.
type observed struct {
	view
	// States are the containers', by name.
	States map[string]workload.State
	// Trouble has the errors that kept containers from being started, by name.
	Trouble map[string]trouble
	// Waits says why volumes are not ready, and MountError is their last error.
	Waits string
}

// trouble is why a container does not run though it should.
type trouble struct{ Reason, Message string }

// statusOf is the status that a kubelet would write. Times of conditions are
// those of known as long as they did not change.
func statusOf(pod *corev1.Pod, o observed) corev1.PodStatus {
	status := *pod.Status.DeepCopy()
	status.ObservedGeneration = pod.Generation
	if o.Finished {
		// It changes only when the volumes are unmounted: other pods wait for that.
		has := o.Mounted || !o.Unmounted && isTrue(status, conditionSandboxReady)
		setCondition(&status, conditionSandboxReady, has, "", "", o.Now)
		return status // the rest was written when it finished
	}
	status.InitContainerStatuses = o.containers(pod, pod.Spec.InitContainers, o.Init, true)
	status.ContainerStatuses = o.containers(pod, pod.Spec.Containers, o.Main, false)
	status.Phase = o.phase()
	if status.StartTime == nil {
		status.StartTime = &metav1.Time{Time: o.Now.Truncate(time.Second)}
	}
	if o.Holder {
		status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	}
	o.conditions(&status)
	return status
}

// phase is the kubelet's getPhase.
func (o observed) phase() corev1.PodPhase {
	if phase := o.endPhase(); phase != "" {
		return phase
	}
	if o.Holder {
		if o.Mounted {
			return corev1.PodRunning
		}
		return corev1.PodPending
	}
	for _, c := range o.Init {
		if !o.initDone(c) {
			return corev1.PodPending
		}
	}
	for _, c := range o.Main {
		if c.Phase == "" || c.Phase == workload.Starting && o.States[c.Name].Previous == nil {
			return corev1.PodPending
		}
	}
	return corev1.PodRunning
}

func (o observed) containers(
	pod *corev1.Pod, specs []corev1.Container, views []containerView, init bool,
) []corev1.ContainerStatus {
	var list []corev1.ContainerStatus
	for i := range specs {
		list = append(list, o.container(pod, &specs[i], views[i], init))
	}
	return list
}

func (o observed) container(
	pod *corev1.Pod, spec *corev1.Container, c containerView, init bool,
) corev1.ContainerStatus {
	state := o.States[c.Name]
	status := corev1.ContainerStatus{Name: c.Name, Image: spec.Image, RestartCount: int32(state.Attempt)}
	if state.Phase != "" {
		status.ContainerID = containerID(pod, c.Name, state.Attempt)
	}
	if previous := state.Previous; previous != nil {
		status.LastTerminationState.Terminated = terminated(pod, c.Name, *previous)
	}
	started := false
	switch {
	case state.Phase == workload.Running:
		started = true
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: state.Started.Truncate(time.Second)}}
	case state.Phase == workload.Exited && state.Ended != nil && !o.restarts(c):
		status.State.Terminated = terminated(pod, c.Name, *state.Ended)
	case state.Phase == workload.Exited && state.Ended != nil:
		status.LastTerminationState.Terminated = terminated(pod, c.Name, *state.Ended)
		status.State.Waiting = o.waiting(pod, c)
	default:
		status.State.Waiting = o.waiting(pod, c)
	}
	status.Started = &started
	// An init container is ready when it is done (v1.ContainerStatus, ready).
	status.Ready = started && !init || init && c.succeeded()
	return status
}

// restarts reports whether an ended container is about to be started again.
func (o observed) restarts(c containerView) bool {
	if o.Deleting || o.endPhase() != "" {
		return false
	}
	for _, init := range o.Init {
		if init.Name == c.Name {
			return !o.initDone(c)
		}
	}
	return o.shouldRun(c)
}

func (o observed) waiting(pod *corev1.Pod, c containerView) *corev1.ContainerStateWaiting {
	if found, ok := o.Trouble[c.Name]; ok {
		return &corev1.ContainerStateWaiting{Reason: found.Reason, Message: bounded(found.Message)}
	}
	if c.Phase == workload.Exited && c.Ended != nil {
		if pause := pauseBefore(*c.Ended, c.Pause); pause > 0 {
			return &corev1.ContainerStateWaiting{Reason: reasonCrashLoop,
				Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s",
					pause, c.Name, describe(pod))}
		}
	}
	reason := reasonCreating
	if len(o.Init) > 0 && !o.Init[len(o.Init)-1].succeeded() &&
		slices.ContainsFunc(o.Main, func(m containerView) bool { return m.Name == c.Name }) {
		reason = reasonInitializing
	}
	return &corev1.ContainerStateWaiting{Reason: reason}
}

// describe names a pod as the kubelet's messages do.
func describe(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

func containerID(pod *corev1.Pod, name string, attempt int) string {
	return containerIDScheme + string(pod.UID) + "/" + name + "/" + strconv.Itoa(attempt)
}

func terminated(pod *corev1.Pod, name string, ended workload.Ended) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{
		ExitCode: int32(ended.ExitCode), Signal: int32(ended.Signal), Reason: ended.Reason, Message: bounded(ended.Message),
		StartedAt:   metav1.Time{Time: ended.Started.Truncate(time.Second)},
		FinishedAt:  metav1.Time{Time: ended.Finished.Truncate(time.Second)},
		ContainerID: containerID(pod, name, ended.Attempt),
	}
}

func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maximumMessage)], "")
}

// conditions adds the conditions that a kubelet and a scheduler write.
func (o observed) conditions(status *corev1.PodStatus) {
	var notReady, notInitialized []string
	for _, c := range status.ContainerStatuses {
		if !c.Ready {
			notReady = append(notReady, c.Name)
		}
	}
	for _, c := range o.Init {
		if !o.initDone(c) {
			notInitialized = append(notInitialized, c.Name)
		}
	}
	set := func(kind corev1.PodConditionType, ok bool, reason, message string) {
		setCondition(status, kind, ok, reason, message, o.Now)
	}
	set(corev1.PodScheduled, true, "", "")
	waits := ""
	if o.Waits != "" {
		waits = reasonWaitingVolumes
	}
	set(conditionSandboxReady, o.Mounted && !o.Unmounted, waits, bounded(o.Waits))
	switch status.Phase {
	case corev1.PodSucceeded:
		set(corev1.PodInitialized, true, reasonPodCompleted, "")
		set(corev1.ContainersReady, false, reasonPodCompleted, "")
		set(corev1.PodReady, false, reasonPodCompleted, "")
		return
	case corev1.PodFailed:
		set(corev1.PodInitialized, len(notInitialized) == 0, incomplete(notInitialized),
			listed("containers with incomplete status", notInitialized))
		set(corev1.ContainersReady, false, reasonPodFailed, "")
		set(corev1.PodReady, false, reasonPodFailed, "")
		return
	}
	set(corev1.PodInitialized, len(notInitialized) == 0, incomplete(notInitialized),
		listed("containers with incomplete status", notInitialized))
	ready, reason := len(notReady) == 0, ""
	message := listed("containers with unready status", notReady)
	if o.Holder {
		ready = o.Mounted && !o.Unmounted
	}
	if !ready {
		reason = reasonNotReady
	}
	set(corev1.ContainersReady, ready, reason, message)
	set(corev1.PodReady, ready, reason, message)
}

func incomplete(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return reasonNotInitialized
}

func listed(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: [%s]", what, strings.Join(names, " "))
}

func setCondition(
	status *corev1.PodStatus, kind corev1.PodConditionType, ok bool, reason, message string, now time.Time,
) {
	desired := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	}
	if ok {
		desired.Status = corev1.ConditionTrue
	}
	for i := range status.Conditions {
		known := &status.Conditions[i]
		if known.Type != kind {
			continue
		}
		if known.Status == desired.Status {
			desired.LastTransitionTime = known.LastTransitionTime
		}
		*known = desired
		return
	}
	status.Conditions = append(status.Conditions, desired)
}

func isTrue(status corev1.PodStatus, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

func sameStatus(a, b corev1.PodStatus) bool { return equality.Semantic.DeepEqual(a, b) }
