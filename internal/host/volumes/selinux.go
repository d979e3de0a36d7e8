package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// selinuxDir has the configuration of SELinux (selinux_config(5)).
const selinuxDir = "/etc/selinux"

// fileContext is the part of a label of files that a pod does not choose.
type fileContext struct{ user, role, kind string }

// containerFiles returns the label of containers' files in the machine's policy: the line
// file= of its lxc_contexts, which the kubelet uses as well. Without one it is that of the
// policies of Fedora and of container-selinux. The policy decides whether it exists: Debian's
// names a type that only an additional module has.
func containerFiles(dir string) fileContext {
	policy := setting(filepath.Join(dir, "config"), "SELINUXTYPE")
	parts := strings.SplitN(setting(filepath.Join(dir, policy, "contexts", "lxc_contexts"), "file"), ":", 4)
	if policy == "" || len(parts) < 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return fileContext{"system_u", "object_r", "container_file_t"}
	}
	return fileContext{parts[0], parts[1], parts[2]}
}

// setting returns the value of a key in a file of lines KEY = VALUE, without quotes; "" if
// there is none.
func setting(file, key string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == key {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

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
	files, label, first := containerFiles(selinuxDir), "", true
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if !slices.ContainsFunc(container.VolumeMounts, func(v corev1.VolumeMount) bool { return v.Name == volume }) {
			continue
		}
		own := fileLabel(files, security, container.SecurityContext)
		if !first && own != label {
			return "", fmt.Errorf("volume %q: container %s wants SELinux label %q, another container %q: "+
				"a volume is mounted with one label; give them one, or set the pod's "+
				"spec.securityContext.seLinuxChangePolicy to Recursive", volume, container.Name, own, label)
		}
		label, first = own, false
	}
	return label, nil
}

func fileLabel(files fileContext, pod *corev1.PodSecurityContext, container *corev1.SecurityContext) string {
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
		user = files.user
	}
	return mount.CanonicalContext(user + ":" + files.role + ":" + files.kind + ":" + options.Level)
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
		if target.PodUID != toMount.pod.UID && target.Phase != store.PhaseNone && !mount.SameContext(target.SELinuxLabel, toMount.selinux) {
			return waitingFor("Pod", target.Pod,
				"%s: pod %s has it mounted with SELinux label %q, this pod wants %q: waiting for that pod to end",
				toMount.label, target.Pod, target.SELinuxLabel, toMount.selinux)
		}
	}
	return nil
}
