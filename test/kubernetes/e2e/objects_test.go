package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

const (
	class   = "holdfast-local" // the chart's name of the StorageClass, and of those of snapshots
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
)

// newClaim returns a claim of a volume with a filesystem, with the changes applied.
func newClaim(name, size string, changes ...func(*corev1.PersistentVolumeClaimSpec)) *corev1.PersistentVolumeClaim {
	storageClass := class
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &storageClass,
			Resources:        requests(size),
		},
	}
	for _, change := range changes {
		change(&claim.Spec)
	}
	return claim
}

func requests(size string) corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
}

// inClass sets the claim's StorageClass.
func inClass(name string) func(*corev1.PersistentVolumeClaimSpec) {
	return func(spec *corev1.PersistentVolumeClaimSpec) { spec.StorageClassName = &name }
}

func asBlock(spec *corev1.PersistentVolumeClaimSpec) {
	block := corev1.PersistentVolumeBlock
	spec.VolumeMode = &block
}

// idle is a script that runs until it gets a signal.
const idle = "trap exit TERM; while true; do sleep 1000000 & wait; done"

// newPod runs a shell script.
func newPod(name, script string, changes ...func(*corev1.PodSpec)) *corev1.Pod {
	grace := int64(2)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			RestartPolicy:                 corev1.RestartPolicyNever,
			Containers:                    []corev1.Container{{Name: "main", Image: busybox, Command: []string{"sh", "-c", script}}},
		},
	}
	for _, change := range changes {
		change(&pod.Spec)
	}
	return pod
}

// withClaim mounts a claim's volume on /NAME, where name is that of the claim.
func withClaim(name string) func(*corev1.PodSpec) {
	return withVolume(name, fromClaim(name))
}

func fromClaim(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// withVolume mounts any volume on /NAME.
func withVolume(name string, source corev1.VolumeSource) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		main := &spec.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
}

// withDevice makes a claim's volume the device /dev/NAME.
func withDevice(name string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: fromClaim(name)})
		main := &spec.Containers[0]
		main.VolumeDevices = append(main.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: "/dev/" + name})
	}
}

// on restricts the pod to a node.
func on(node string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

// inlineVolume is a volume that lives and dies with its pod.
func inlineVolume(size string) corev1.VolumeSource {
	return corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: deployment.LocalDriver, VolumeAttributes: map[string]string{"size": size}}}
}

// writeFile is a script that writes a file of random bytes and its checksum next to it,
// and syncs both.
func writeFile(file string, size string) string {
	return fmt.Sprintf("head -c %s /dev/urandom >%s && sha256sum <%s >%s.sum && sync", size, file, file, file)
}

// checkFile is a script that fails if the file does not match the checksum of writeFile.
func checkFile(file string) string {
	return fmt.Sprintf(`sha256sum <%s | cmp - %s.sum`, file, file)
}
