package volumes

import (
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// selinuxEnabled reports whether the kernel labels files: selinuxfs is mounted then.
func selinuxEnabled() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// The parts of a container file's label that a pod does not choose (the SELinux
// policy of containers, file contexts).
const (
	selinuxUser = "system_u"
	selinuxRole = "object_r"
	selinuxType = "container_file_t"
)

// selinuxLabel returns the label with which a volume is mounted for a pod. It is "" on a
// machine without SELinux, for a driver without seLinuxMount, and for a pod that names no
// level or asks for its files to be relabelled. Containers of one volume must agree.
func (m *Manager) selinuxLabel(
	driver *storagev1.CSIDriver, pod *corev1.Pod, volume string, inline, block bool,
) (string, error) {
	mounts := driver != nil && driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount
	if inline || block || !mounts || !m.node.labels() {
		return "", nil
	}
	security := pod.Spec.SecurityContext
	if security != nil && security.SELinuxChangePolicy != nil &&
		*security.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive {
		return "", nil
	}
	label, first := "", true
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.ContainsFunc(container.VolumeMounts, func(v corev1.VolumeMount) bool { return v.Name == volume }) {
			continue
		}
		own := fileLabel(security, container.SecurityContext)
		if !first && own != label {
			return "", fmt.Errorf("volume %q: container %s wants SELinux label %q, another container %q: "+
				"a volume is mounted with one label; give them one, or set the pod's "+
				"spec.securityContext.seLinuxChangePolicy to Recursive", volume, container.Name, own, label)
		}
		label, first = own, false
	}
	return label, nil
}

func fileLabel(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) string {
	var options *corev1.SELinuxOptions
	if pod != nil {
		options = pod.SELinuxOptions
	}
	if container != nil && container.SELinuxOptions != nil {
		options = container.SELinuxOptions
	}
	if options == nil || options.Level == "" {
		return ""
	}
	user := options.User
	if user == "" {
		user = selinuxUser
	}
	return user + ":" + selinuxRole + ":" + selinuxType + ":" + options.Level
}

// withLabel returns a copy of the flags with the mount option.
func withLabel(flags []string, label string) []string {
	if label == "" {
		return flags
	}
	return append(slices.Clone(flags), fmt.Sprintf("context=%q", label))
}

// checkLabel returns an error if a volume is mounted for another pod with another label.
func checkLabel(use *store.VolumeUse, toMount volumeToMount) error {
	for _, target := range use.Targets {
		if target.PodUID != toMount.pod.UID && target.Phase != store.PhaseNone && target.SELinuxLabel != toMount.selinux {
			return waitingFor("Pod", target.Pod,
				"%s: pod %s has it mounted with SELinux label %q, this pod wants %q: waiting for that pod to end",
				toMount.label, target.Pod, target.SELinuxLabel, toMount.selinux)
		}
	}
	return nil
}
