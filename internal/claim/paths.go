package claim

import (
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Paths are the paths of the kubelet's directory layout below its root
// directory. Drivers are tested against this layout, so the host keeps it.
type Paths struct {
	Root string
}

// escapedPlugin is "kubernetes.io/csi" as the kubelet writes it in paths.
const escapedPlugin = "kubernetes.io~csi"

func (p Paths) plugins(elements ...string) string {
	return filepath.Join(append([]string{p.Root, "plugins", "kubernetes.io", "csi"}, elements...)...)
}

// Registry is the directory that drivers put their registration sockets in.
func (p Paths) Registry() string { return filepath.Join(p.Root, "plugins_registry") }

// Driver is the directory of a driver's own socket.
func (p Paths) Driver(driver string) string { return filepath.Join(p.Root, "plugins", driver) }

// Staging is the staging directory of a filesystem volume. Two
// PersistentVolumes with one handle share it.
func (p Paths) Staging(driver, handle string) string {
	return p.plugins(driver, hash(handle), "globalmount")
}

// Pod is the directory of a pod.
func (p Paths) Pod(uid types.UID) string { return filepath.Join(p.Root, "pods", string(uid)) }

// PodRecord is the host's record of a pod that it runs: it is there until the
// pod's processes have ended and its volumes are taken away.
func (p Paths) PodRecord(uid types.UID) string { return filepath.Join(p.Pod(uid), "run", "pod.json") }

// Container is the directory of a container of a pod.
func (p Paths) Container(uid types.UID, container string) string {
	return filepath.Join(p.Pod(uid), "containers", container)
}

// Publish is the target path of a filesystem volume for a pod. specName is the
// PersistentVolume's name, or the volume's name in the pod for an inline volume.
func (p Paths) Publish(uid types.UID, specName string) string {
	return filepath.Join(p.Pod(uid), "volumes", escapedPlugin, escape(specName), "mount")
}

// BlockStaging is the staging directory of a raw block volume.
func (p Paths) BlockStaging(specName string) string {
	return p.plugins("volumeDevices", "staging", specName)
}

// BlockPublish is the target path of a raw block volume for a pod: a file.
func (p Paths) BlockPublish(specName string, uid types.UID) string {
	return p.plugins("volumeDevices", "publish", specName, string(uid))
}

// EmptyDir is the directory of an emptyDir volume of a pod.
func (p Paths) EmptyDir(uid types.UID, volumeName string) string {
	return filepath.Join(p.Pod(uid), "volumes", "kubernetes.io~empty-dir", volumeName)
}

func escape(name string) string { return strings.ReplaceAll(name, "/", "~") }
