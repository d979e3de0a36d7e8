package status

import (
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
)

// clusterSteps are the steps of a cluster's object, from timestamps and events. These
// are exact to the second, and events disappear after an hour.
func (v View) clusterSteps(ref Ref) []journal.StepEntry {
	key := joined(ref.Namespace, ref.Name)
	switch ref.Kind {
	case Claim:
		if pvc, ok := one[*corev1.PersistentVolumeClaim](v.mirror, kindClaim, key); ok {
			return v.claimSteps(pvc)
		}
	case Volume:
		return v.attachSteps(ref.Name)
	case Pod:
		if pod, ok := one[*corev1.Pod](v.mirror, kindPod, key); ok {
			return v.podSteps(pod)
		}
	case Snapshot:
		if snapshot, ok := one[*snapshotv1.VolumeSnapshot](v.mirror, kindSnapshot, key); ok {
			return v.snapshotSteps(snapshot)
		}
	}
	return nil
}

// claimSteps are the creation of the volume and its attachments.
func (v View) claimSteps(pvc *corev1.PersistentVolumeClaim) []journal.StepEntry {
	ref := Ref{Claim, pvc.Namespace, pvc.Name}
	var end time.Time
	pv, ok := one[*corev1.PersistentVolume](v.mirror, kindVolume, pvc.Spec.VolumeName)
	if ok {
		end = pv.CreationTimestamp.Time
	}
	if ok && end.Before(pvc.CreationTimestamp.Time) {
		return v.attachSteps(pv.Name) // the volume existed
	}
	create := newStep(stepProvision, ref, pvc.CreationTimestamp.Time, end)
	create = v.withFailures(create, kindClaim, keyOf(pvc), "ProvisioningFailed")
	return append([]journal.StepEntry{create}, v.attachSteps(pvc.Spec.VolumeName)...)
}

// withFailures adds what warnings with a reason say to a step.
func (v View) withFailures(step journal.StepEntry, kind, key string, reasons ...string) journal.StepEntry {
	failures := 0
	for _, event := range v.eventsOf(kind, key, "") {
		if !event.Warning || !slices.Contains(reasons, event.Reason) {
			continue
		}
		failures += event.Count
		if step.Status == journal.Started {
			step.Status, step.Error = journal.Retrying, event.Message
		}
	}
	if step.Attempts = failures; step.Status == journal.Done {
		step.Attempts++
	}
	return step
}

// attachSteps are the attachments of a volume. That of an attachment ends with its pod's
// event, or is not known.
func (v View) attachSteps(volume string) (steps []journal.StepEntry) {
	for _, attachment := range all[*storagev1.VolumeAttachment](v.mirror, kindAttachment) {
		if volume == "" || deref(attachment.Spec.Source.PersistentVolumeName) != volume {
			continue
		}
		var end time.Time
		if attachment.Status.Attached {
			end = v.attachedAt(volume, attachment.CreationTimestamp.Time)
		}
		step := newStep(stepAttach, Ref{Kind: Volume, Name: volume}, attachment.CreationTimestamp.Time, end)
		step.Driver, step.Detail = attachment.Spec.Attacher, "to node "+attachment.Spec.NodeName
		if failed := attachment.Status.AttachError; failed != nil && end.IsZero() {
			step.Status, step.Error, step.Attempts = journal.Retrying, failed.Message, 1
		}
		steps = append(steps, step)
	}
	return steps
}

// attachedAt finds the event of a pod that reports an attachment; without one it is when
// the attachment was created.
func (v View) attachedAt(volume string, created time.Time) time.Time {
	v.mirror.mu.RLock()
	defer v.mirror.mu.RUnlock()
	for of, events := range v.mirror.events {
		if of.kind != kindPod {
			continue
		}
		for _, event := range events {
			at := newEvent(event).First
			if event.Reason == "SuccessfulAttachVolume" && strings.Contains(event.Message, `"`+volume+`"`) && !at.Before(created) {
				return at
			}
		}
	}
	return created
}

// podSteps are scheduling, the attachments of the pod's volumes and its start, which
// includes the mounts.
func (v View) podSteps(pod *corev1.Pod) []journal.StepEntry {
	ref := Ref{Pod, pod.Namespace, pod.Name}
	scheduled := conditionSince(pod, corev1.PodScheduled)
	schedule := newStep(stepSchedule, ref, pod.CreationTimestamp.Time, scheduled)
	schedule.Detail = pod.Spec.NodeName
	steps := []journal.StepEntry{v.withFailures(schedule, kindPod, keyOf(pod), "FailedScheduling")}
	for _, name := range ClaimsOf(pod) {
		if pvc, ok := one[*corev1.PersistentVolumeClaim](v.mirror, kindClaim, joined(pod.Namespace, name)); ok {
			steps = append(steps, v.attachSteps(pvc.Spec.VolumeName)...)
		}
	}
	if scheduled.IsZero() {
		return steps
	}
	start := newStep(stepStart, ref, scheduled, startedAt(pod))
	return append(steps, v.withFailures(start, kindPod, keyOf(pod), "FailedMount", "FailedAttachVolume", "FailedMapVolume", "BackOff"))
}

// startedAt is when the first container of a pod started.
func startedAt(pod *corev1.Pod) (at time.Time) {
	for _, status := range pod.Status.ContainerStatuses {
		for _, state := range []corev1.ContainerState{status.LastTerminationState, status.State} {
			var started time.Time
			switch {
			case state.Running != nil:
				started = state.Running.StartedAt.Time
			case state.Terminated != nil:
				started = state.Terminated.StartedAt.Time
			}
			if !started.IsZero() && (at.IsZero() || started.Before(at)) {
				at = started
			}
		}
	}
	return at
}

func conditionSince(pod *corev1.Pod, kind corev1.PodConditionType) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func (v View) snapshotSteps(snapshot *snapshotv1.VolumeSnapshot) []journal.StepEntry {
	var end time.Time
	if status := snapshot.Status; status != nil && status.ReadyToUse != nil && *status.ReadyToUse && status.CreationTime != nil {
		end = status.CreationTime.Time
	}
	step := newStep(stepSnapshot, Ref{Snapshot, snapshot.Namespace, snapshot.Name}, snapshot.CreationTimestamp.Time, end)
	return []journal.StepEntry{v.withFailures(step, kindSnapshot, keyOf(snapshot), "SnapshotCreationFailed", "SnapshotContentCreationFailed")}
}

// clusterDrivers are the drivers that CSIDriver and CSINode objects name.
func (v View) clusterDrivers() []Driver {
	found := map[string]*Driver{}
	named := func(name string) *Driver {
		if found[name] == nil {
			found[name] = &Driver{Name: name, State: "on no node"}
		}
		return found[name]
	}
	for _, driver := range all[*storagev1.CSIDriver](v.mirror, kindDriver) {
		named(driver.Name).Since = driver.CreationTimestamp.Time
	}
	for _, node := range all[*storagev1.CSINode](v.mirror, kindCSINode) {
		for _, driver := range node.Spec.Drivers {
			d := named(driver.Name)
			d.Nodes, d.Registered, d.Healthy, d.State = d.Nodes+1, true, true, "registered"
			d.Facts = append(d.Facts, Fact{Label: "Node", Value: node.Name + " (" + driver.NodeID + ")"})
		}
	}
	var drivers []Driver
	for _, driver := range found {
		drivers = append(drivers, *driver)
	}
	slices.SortFunc(drivers, func(a, b Driver) int { return strings.Compare(a.Name, b.Name) })
	return drivers
}
