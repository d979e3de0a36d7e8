package manifest

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

func checkMeta(meta metav1.Object, namespaced bool) []string {
	var problems []string
	if meta.GetName() == "" {
		problems = append(problems, "metadata.name: is missing")
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(meta.GetName()) {
			problems = append(problems, "metadata.name: "+problem)
		}
	}
	if !namespaced && meta.GetNamespace() != "" {
		return append(problems, "metadata.namespace: objects of this kind have none")
	}
	if namespaced {
		for _, problem := range validation.IsDNS1123Label(meta.GetNamespace()) {
			problems = append(problems, "metadata.namespace: "+problem)
		}
	}
	return problems
}

func checkClass(class *storagev1.StorageClass) []string {
	var problems []string
	if class.Provisioner == "" {
		problems = append(problems, "provisioner: is missing")
	}
	if _, err := claim.ParseClass(class); err != nil {
		problems = append(problems, strings.TrimPrefix(err.Error(), fmt.Sprintf("StorageClass %q: ", class.Name)))
	}
	policies := []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain}
	if policy := claim.ReclaimPolicy(class); !slices.Contains(policies, policy) {
		problems = append(problems, fmt.Sprintf("reclaimPolicy: %q is neither Delete nor Retain", policy))
	}
	if mode := class.VolumeBindingMode; mode != nil && *mode != storagev1.VolumeBindingImmediate && *mode != storagev1.VolumeBindingWaitForFirstConsumer {
		problems = append(problems, fmt.Sprintf("volumeBindingMode: %q is neither Immediate nor WaitForFirstConsumer", *mode))
	}
	return problems
}

func checkDriver(driver *storagev1.CSIDriver) []string {
	var problems []string
	for i, mode := range driver.Spec.VolumeLifecycleModes {
		if mode != storagev1.VolumeLifecyclePersistent && mode != storagev1.VolumeLifecycleEphemeral {
			problems = append(problems, fmt.Sprintf("spec.volumeLifecycleModes[%d]: %q is neither Persistent nor Ephemeral", i, mode))
		}
	}
	if policy := claim.FSGroupPolicy(driver); !slices.Contains([]storagev1.FSGroupPolicy{
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy,
	}, policy) {
		problems = append(problems, fmt.Sprintf("spec.fsGroupPolicy: %q is none of ReadWriteOnceWithFSType, File, None", policy))
	}
	return problems
}

func checkClaim(pvc *corev1.PersistentVolumeClaim) []string {
	var problems []string
	trim := func(err error) string { return strings.TrimPrefix(err.Error(), claim.Describe(pvc)+": ") }
	if len(pvc.Spec.AccessModes) == 0 {
		problems = append(problems, "spec.accessModes: at least one is needed")
	}
	for i, mode := range pvc.Spec.AccessModes {
		if _, err := (claim.Modes{}).AccessMode(mode); err != nil {
			problems = append(problems, fmt.Sprintf("spec.accessModes[%d]: %v", i, err))
		}
		if mode == corev1.ReadWriteOncePod && len(pvc.Spec.AccessModes) > 1 {
			problems = append(problems, "spec.accessModes: ReadWriteOncePod stands alone")
		}
	}
	if _, err := claim.SizeOf(pvc); err != nil {
		problems = append(problems, trim(err))
	}
	if _, err := claim.SourceOf(pvc); err != nil {
		problems = append(problems, trim(err))
	}
	if mode := pvc.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem && *mode != corev1.PersistentVolumeBlock {
		problems = append(problems, fmt.Sprintf("spec.volumeMode: %q is neither Filesystem nor Block", *mode))
	}
	if name := pvc.Spec.StorageClassName; name != nil && *name == "" {
		problems = append(problems, `spec.storageClassName: "" asks for a volume that exists already, which is not supported on one machine; name a StorageClass`)
	}
	return problems
}

func checkPod(pod *corev1.Pod) []string {
	var problems []string
	if len(pod.Spec.Containers) == 0 {
		problems = append(problems, "spec.containers: at least one is needed")
	}
	volumes := map[string]bool{}
	for i, volume := range pod.Spec.Volumes {
		at := fmt.Sprintf("spec.volumes[%d]", i)
		problems = append(problems, checkVolume(at, &volume)...)
		if volumes[volume.Name] {
			problems = append(problems, fmt.Sprintf("%s.name: %q is there twice", at, volume.Name))
		}
		volumes[volume.Name] = true
	}
	names := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		problems = append(problems, checkContainer(fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i], volumes, names)...)
	}
	for i := range pod.Spec.Containers {
		problems = append(problems, checkContainer(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i], volumes, names)...)
	}
	return problems
}

func checkVolume(at string, volume *corev1.Volume) []string {
	var problems []string
	for _, problem := range validation.IsDNS1123Label(volume.Name) {
		problems = append(problems, at+".name: "+problem)
	}
	kinds := 0
	if source := volume.PersistentVolumeClaim; source != nil {
		kinds++
		if source.ClaimName == "" {
			problems = append(problems, at+".persistentVolumeClaim.claimName: is missing")
		}
	}
	if source := volume.CSI; source != nil {
		kinds++
		if source.Driver == "" {
			problems = append(problems, at+".csi.driver: is missing")
		}
	}
	if source := volume.EmptyDir; source != nil {
		kinds++
		if source.Medium != "" || source.SizeLimit != nil {
			problems = append(problems, at+".emptyDir: medium and sizeLimit are not supported on one machine")
		}
	}
	switch {
	case kinds > 1:
		problems = append(problems, at+": names more than one kind of volume")
	case kinds == 0 && volume.VolumeSource == (corev1.VolumeSource{}): // another kind is refused by its field
		problems = append(problems, at+": names no kind of volume; supported are persistentVolumeClaim, csi and emptyDir")
	}
	return problems
}

func checkContainer(at string, container *corev1.Container, volumes, names map[string]bool) []string {
	var problems []string
	for _, problem := range validation.IsDNS1123Label(container.Name) {
		problems = append(problems, at+".name: "+problem)
	}
	if names[container.Name] {
		problems = append(problems, fmt.Sprintf("%s.name: %q is there twice", at, container.Name))
	}
	names[container.Name] = true
	if len(container.Command) == 0 {
		problems = append(problems, at+".command: is needed on one machine, where the image, which may have one, is not used")
	}
	places := map[string]bool{}
	place := func(field, name, target string) {
		if !volumes[name] {
			problems = append(problems, fmt.Sprintf("%s: the pod has no volume %q", field, name))
		}
		switch clean := path.Clean(target); {
		case !path.IsAbs(target):
			problems = append(problems, fmt.Sprintf("%s: the path %q is not absolute", field, target))
		case clean == "/":
			problems = append(problems, fmt.Sprintf("%s: the root itself cannot be a mount path", field))
		case places[clean]:
			problems = append(problems, fmt.Sprintf("%s: the path %q is taken", field, target))
		default:
			places[clean] = true
		}
	}
	for i, mount := range container.VolumeMounts {
		place(fmt.Sprintf("%s.volumeMounts[%d]", at, i), mount.Name, mount.MountPath)
		if sub := mount.SubPath; sub != "" && (path.IsAbs(sub) || slices.Contains(strings.Split(sub, "/"), "..")) {
			problems = append(problems, fmt.Sprintf("%s.volumeMounts[%d].subPath: %q leads out of the volume", at, i, sub))
		}
	}
	for i, device := range container.VolumeDevices {
		place(fmt.Sprintf("%s.volumeDevices[%d]", at, i), device.Name, device.DevicePath)
	}
	return problems
}
