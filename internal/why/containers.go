package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// reasonStartError is the reason with which containerd and the host report a
// container that could not be started.
const reasonStartError = "StartError"

// containers reports why the containers of a pod do not run.
func (w *walk) containers(pod *corev1.Pod) {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch waits := status.State.Waiting; {
		case waits != nil:
			w.containerWaiting(pod, status, waits)
		case status.State.Terminated != nil && status.State.Terminated.ExitCode != 0:
			w.containerTerminated(pod, status, status.State.Terminated)
		case status.State.Running != nil && !status.Ready && status.Started != nil && *status.Started && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == status.Name && c.ReadinessProbe != nil }):
			w.add(waiting, Finding{What: fmt.Sprintf("container %s runs, and its readiness probe does not succeed",
				status.Name), Since: status.State.Running.StartedAt.Time,
				Evidence: []string{statusOf(pod, status.Name,
					"ready")}, Do: "Wait; if it does not become ready, read the container's log and check its probe."})
		}
	}
}

func statusOf(pod *corev1.Pod, container, field string) string {
	return evidence(pods, pod.Namespace, pod.Name, fmt.Sprintf("status.containerStatuses[%s].%s", container, field))
}

func (w *walk) containerWaiting(pod *corev1.Pod, status corev1.ContainerStatus, waits *corev1.ContainerStateWaiting) {
	f := Finding{Error: waits.Message, Evidence: []string{statusOf(pod, status.Name, "state.waiting")}}
	switch waits.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return // the volumes, the images or the init containers are not ready
	case "CrashLoopBackOff":
		w.crashLoop(pod, status, f)
		return
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		f.What = fmt.Sprintf("the image of container %s cannot be pulled (%s)", status.Name, waits.Reason)
		f.Do = "Correct the image's name, or give the pod the right to pull it."
	case "CreateContainerConfigError":
		f.What = fmt.Sprintf("container %s cannot be started: its configuration refers to something that is missing", status.Name)
		f.Do = "Create the object that the message names, or correct the reference to it."
	default:
		f.What = fmt.Sprintf("container %s cannot be started (%s)", status.Name, waits.Reason)
		f.Do = "Correct the object that the message names."
	}
	w.add(cause, f)
}

// crashLoop reports a container that is restarted after each failure.
func (w *walk) crashLoop(pod *corev1.Pod, status corev1.ContainerStatus, f Finding) {
	f.Attempts = int(status.RestartCount) + 1
	f.What = fmt.Sprintf("container %s fails after each restart", status.Name)
	f.Do = fmt.Sprintf("See why in its log: %s.", w.logsOf(pod, status.Name, status.RestartCount > 0))
	if ended := status.LastTerminationState.Terminated; ended != nil {
		f.Since, f.Evidence = ended.FinishedAt.Time, append(f.Evidence, statusOf(pod, status.Name, "lastState.terminated"))
		f.Error = describeEnd(ended)
		w.notStarted(&f, status.Name, ended)
	}
	w.add(cause, f)
}

// containerTerminated reports a container that failed and is not restarted.
func (w *walk) containerTerminated(
	pod *corev1.Pod, status corev1.ContainerStatus, ended *corev1.ContainerStateTerminated,
) {
	f := Finding{What: fmt.Sprintf("container %s has failed and is not restarted", status.Name),
		Since: ended.FinishedAt.Time, Error: describeEnd(ended),
		Evidence: []string{statusOf(pod, status.Name, "state.terminated")}, Do: fmt.Sprintf("See why in its log: %s; delete the failed pod and create it again.", w.logsOf(pod, status.Name, false))}
	w.notStarted(&f, status.Name, ended)
	w.add(cause, f)
}

// Exit codes with which shells and the host report that a program cannot be executed.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// notStarted replaces the finding if the program of the container did not run.
func (w *walk) notStarted(f *Finding, container string, ended *corev1.ContainerStateTerminated) {
	switch {
	case ended.Reason == reasonStartError:
		f.What = fmt.Sprintf("container %s cannot be started", container)
		f.Do = "Correct the object that the message names: the command must exist and be executable, and the mount paths must be usable in the container."
		return
	case ended.ExitCode == exitNotFound:
		f.What = fmt.Sprintf("the program of container %s, or one that it calls, is not found", container)
	case ended.ExitCode == exitNotExecutable:
		f.What = fmt.Sprintf("the program of container %s, or one that it calls, is not executable", container)
	default:
		return
	}
	where := "in its image"
	if w.onHost {
		where = "on this machine, as its image is not used"
	}
	f.Do = fmt.Sprintf("Correct the container's command, which is looked up %s. %s", where, f.Do)
}

func describeEnd(ended *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exit code %d", ended.ExitCode)
	if ended.Reason != "" && ended.Reason != "Error" {
		text += " (" + ended.Reason + ")"
	}
	if ended.Message != "" {
		text += ": " + ended.Message
	}
	return text
}

// logsOf is the command that shows a container's output.
func (w *walk) logsOf(pod *corev1.Pod, container string, previous bool) string {
	program := "kubectl"
	if w.onHost {
		program = "holdfast"
	}
	command := fmt.Sprintf("'%s logs %s -n %s -c %s", program, pod.Name, pod.Namespace, container)
	if previous {
		command += " --previous"
	}
	return command + "'"
}

// mounts asks a host whether the volumes of a running pod answer.
func (w *walk) mounts(pod *corev1.Pod) {
	if !w.onHost {
		return
	}
	found, err := w.host.Mounts(w.ctx, key(pod.Namespace, pod.Name))
	if err != nil {
		w.readFailed("the mounts of pod "+pod.Name, err)
		return
	}
	for _, mount := range found {
		if mount.Error == "" {
			continue
		}
		w.add(cause, Finding{What: fmt.Sprintf("the volume %s of the pod does not answer on this machine", mount.Volume),
			Error: mount.Error, Evidence: []string{mount.Path},
			Do: fmt.Sprintf("Check that the processes of driver %s that serve its filesystem run; then delete the pod and apply it again: its volume is published again.", mount.Driver)})
	}
}
