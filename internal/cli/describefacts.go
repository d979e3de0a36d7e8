package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// factsOf returns the facts of an object that its table lacks a column for.
func factsOf(object store.Object) [][]string {
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		return claimFacts(object)
	case *corev1.PersistentVolume:
		return volumeFacts(object)
	case *corev1.Pod:
		return podFacts(object)
	case *storagev1.StorageClass:
		facts := pairs("Parameters:", object.Parameters)
		return append(facts, []string{"Mount Options:", orNone(strings.Join(object.MountOptions, ","))})
	case *storagev1.VolumeAttributesClass:
		return pairs("Parameters:", object.Parameters)
	case *snapshotv1.VolumeSnapshotClass:
		return pairs("Parameters:", object.Parameters)
	case *snapshotv1.VolumeSnapshot:
		if object.Status != nil && object.Status.Error != nil {
			return [][]string{{"Error:", printable(text(object.Status.Error.Message))}}
		}
	case *snapshotv1.VolumeSnapshotContent:
		return contentFacts(object)
	case *storagev1.CSIDriver:
		return [][]string{{"FS Group Policy:", or(object.Spec.FSGroupPolicy, "<unset>")}}
	case *storagev1.CSINode:
		return nodeFacts(object)
	case *storagev1.VolumeAttachment:
		return attachmentFacts(object)
	case *corev1.Secret:
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(object.Data)) {
			rows = append(rows, []string{"", name + " (not shown)"})
		}
		return rows
	case *corev1.ConfigMap:
		return configFacts(object)
	}
	return nil
}

// configFacts has the keys of a ConfigMap with their sizes; 'get -o yaml' shows the values.
func configFacts(config *corev1.ConfigMap) (rows [][]string) {
	all := podvalues.In(config)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		rows = append(rows, []string{"", fmt.Sprintf("%s (%d bytes)", name, len(all[name]))})
	}
	return rows
}

func claimFacts(pvc *corev1.PersistentVolumeClaim) [][]string {
	desired := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	facts := [][]string{{"Requested:", desired.String()}}
	if source := pvc.Spec.DataSource; source != nil {
		facts = append(facts, []string{"Data Source:", strings.ToLower(source.Kind) + "/" + source.Name})
	}
	if state := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; state != "" {
		facts = append(facts, []string{"Resize:", string(state)})
	}
	if modify := pvc.Status.ModifyVolumeStatus; modify != nil {
		facts = append(facts, []string{"Modify:", fmt.Sprintf("%s to %s", modify.Status,
			modify.TargetVolumeAttributesClassName)})
	}
	return facts
}

func volumeFacts(volume *corev1.PersistentVolume) [][]string {
	facts := [][]string{{"Mount Options:", orNone(strings.Join(volume.Spec.MountOptions, ","))}}
	source := volume.Spec.CSI
	if source == nil {
		return facts
	}
	facts = append(facts, []string{"Driver:", source.Driver}, []string{"FS Type:", orNone(source.FSType)})
	if source.ReadOnly {
		facts = append(facts, []string{"Read Only:", "true"})
	}
	return append(facts, pairs("Volume Attributes:", source.VolumeAttributes)...)
}

func podFacts(pod *corev1.Pod) [][]string {
	facts := [][]string{{"Phase:", string(pod.Status.Phase)}}
	if pod.Status.Message != "" {
		facts = append(facts, []string{"Message:", printable(pod.Status.Message)})
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		facts = append(facts, []string{"Container " + status.Name + ":", containerText(status)})
	}
	for _, volume := range pod.Spec.Volumes {
		facts = append(facts, []string{"Volume " + volume.Name + ":", volumeText(pod, volume)})
	}
	return facts
}

func containerText(status corev1.ContainerStatus) string {
	state := status.State
	var what string
	switch {
	case state.Running != nil:
		what = "running since " + timeOf(&state.Running.StartedAt)
	case state.Terminated != nil:
		what = fmt.Sprintf("ended with exit code %d at %s", state.Terminated.ExitCode, timeOf(&state.Terminated.FinishedAt))
	case state.Waiting != nil:
		what = strings.TrimSpace("waiting: " + state.Waiting.Reason + " " + state.Waiting.Message)
	default:
		what = "waiting"
	}
	if status.RestartCount > 0 {
		what += ", restarted " + times(int(status.RestartCount))
	}
	return printable(what)
}

func volumeText(pod *corev1.Pod, volume corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return "persistentvolumeclaim/" + volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil:
		return "persistentvolumeclaim/" + pod.Name + "-" + volume.Name + " (ephemeral)"
	case volume.CSI != nil:
		return "inline of " + volume.CSI.Driver
	case volume.EmptyDir != nil:
		return "empty directory"
	}
	return "other"
}

func contentFacts(content *snapshotv1.VolumeSnapshotContent) [][]string {
	facts := [][]string{}
	if handle := text(content.Spec.Source.VolumeHandle); handle != "" {
		facts = append(facts, []string{"Source Volume:", handle})
	}
	if handle := text(content.Spec.Source.SnapshotHandle); handle != "" {
		facts = append(facts, []string{"Source Snapshot:", handle})
	}
	if status := content.Status; status != nil {
		facts = append(facts, []string{"Handle:", orNone(text(status.SnapshotHandle))})
		if status.Error != nil {
			facts = append(facts, []string{"Error:", printable(text(status.Error.Message))})
		}
	}
	return facts
}

func nodeFacts(node *storagev1.CSINode) [][]string {
	var facts [][]string
	for _, driver := range node.Spec.Drivers {
		limit := "no limit"
		if driver.Allocatable != nil && driver.Allocatable.Count != nil {
			limit = fmt.Sprintf("at most %d volumes", *driver.Allocatable.Count)
		}
		facts = append(facts, []string{"Driver " + driver.Name + ":", fmt.Sprintf("node ID %s, topology keys %s, %s",
			driver.NodeID, orNone(strings.Join(driver.TopologyKeys, ",")), limit)})
	}
	return facts
}

func attachmentFacts(attachment *storagev1.VolumeAttachment) [][]string {
	facts := pairs("Metadata:", attachment.Status.AttachmentMetadata)
	for name, failure := range map[string]*storagev1.VolumeError{
		"Attach Error:": attachment.Status.AttachError, "Detach Error:": attachment.Status.DetachError,
	} {
		if failure != nil {
			facts = append(facts, []string{name, printable(failure.Message)})
		}
	}
	return facts
}

// conditionsOf are the conditions of kinds that have some.
func conditionsOf(object store.Object) [][]string {
	rows := [][]string{{"TYPE", "STATUS", "REASON", "MESSAGE"}}
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		for _, c := range object.Status.Conditions {
			rows = append(rows, []string{string(c.Type), string(c.Status), c.Reason, printable(c.Message)})
		}
	case *corev1.Pod:
		for _, c := range object.Status.Conditions {
			rows = append(rows, []string{string(c.Type), string(c.Status), c.Reason, printable(c.Message)})
		}
	}
	if len(rows) == 1 {
		return nil
	}
	return rows
}
