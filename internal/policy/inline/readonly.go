package inline

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// WantsReadOnly reports whether a driver requires read-only inline volumes.
func WantsReadOnly(driver *storagev1.CSIDriver) bool {
	if driver == nil {
		return false
	}
	value, has := driver.Labels[ReadOnlyLabel]
	return has && value != "false"
}

// Mutate makes the inline volumes of drivers that require it read-only: the volume, for
// the driver, and its mounts, so that the pod shows it. It returns the fields that it set
// to true, as JSON pointers.
//
// The kubelet applies no fsGroup to a read-only volume: such a driver must set
// group and mode itself.
func (p *Policy) Mutate(pod *corev1.Pod, driver func(string) *storagev1.CSIDriver) (set []string) {
	if pod.DeletionTimestamp != nil || p.exempt[pod.Namespace] {
		return nil
	}
	names := map[string]bool{}
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].CSI
		if source == nil || !WantsReadOnly(driver(source.Driver)) {
			continue
		}
		names[pod.Spec.Volumes[i].Name] = true
		if source.ReadOnly == nil || !*source.ReadOnly {
			source.ReadOnly = new(true)
			set = append(set, fmt.Sprintf("/spec/volumes/%d/csi/readOnly", i))
		}
	}
	if len(names) == 0 {
		return nil
	}
	set = append(set, mountReadOnly("initContainers", pod.Spec.InitContainers, names)...)
	return append(set, mountReadOnly("containers", pod.Spec.Containers, names)...)
}

func mountReadOnly(field string, containers []corev1.Container, volumes map[string]bool) (set []string) {
	for i := range containers {
		for j := range containers[i].VolumeMounts {
			mount := &containers[i].VolumeMounts[j]
			if volumes[mount.Name] && !mount.ReadOnly {
				mount.ReadOnly = true
				set = append(set, fmt.Sprintf("/spec/%s/%d/volumeMounts/%d/readOnly", field, i, j))
			}
		}
	}
	return set
}
