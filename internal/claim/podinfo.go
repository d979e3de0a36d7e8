package claim

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Ephemeral is the volume_context key that marks an inline volume.
const Ephemeral = ReservedPrefix + "ephemeral"

// PublishContext is the volume_context of NodePublishVolume: the attributes
// without any reserved key that their author may have forged, and the facts
// about the pod. The kubelet adds those only if the CSIDriver object says
// podInfoOnMount; a host that always adds them leaves nothing to forge.
func PublishContext(pod *corev1.Pod, attributes map[string]string, inline bool) map[string]string {
	context := WithoutReserved(attributes)
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default" // the default of the API server's admission
	}
	maps.Copy(context, map[string]string{
		ReservedPrefix + "pod.name":            pod.Name,
		ReservedPrefix + "pod.namespace":       pod.Namespace,
		ReservedPrefix + "pod.uid":             string(pod.UID),
		ReservedPrefix + "serviceAccount.name": account,
		Ephemeral:                              strconv.FormatBool(inline),
	})
	return context
}

// WithoutReserved copies attributes without the keys that belong to Kubernetes.
func WithoutReserved(attributes map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range attributes {
		if !strings.HasPrefix(key, ReservedPrefix) {
			kept[key] = value
		}
	}
	return kept
}

// FSGroupPolicy returns the fsGroupPolicy of a CSIDriver object; the default without one.
func FSGroupPolicy(driver *storagev1.CSIDriver) storagev1.FSGroupPolicy {
	if driver == nil || driver.Spec.FSGroupPolicy == nil {
		return storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	}
	return *driver.Spec.FSGroupPolicy
}

// AppliesFSGroup reports whether the files of a volume that is mounted writable
// get the pod's fsGroup from the host. Drivers with VOLUME_MOUNT_GROUP do it themselves.
func AppliesFSGroup(
	policy storagev1.FSGroupPolicy, fsType string, modes []corev1.PersistentVolumeAccessMode, inline bool,
) bool {
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	if fsType == "" {
		return false
	}
	for _, mode := range modes {
		if mode == corev1.ReadWriteOnce || mode == corev1.ReadWriteOncePod {
			return true
		}
	}
	return inline
}

// HasLifecycle reports whether a driver serves a kind of volume. Without a
// CSIDriver object, and without a list in it, that is persistent volumes only.
func HasLifecycle(driver *storagev1.CSIDriver, mode storagev1.VolumeLifecycleMode) bool {
	if driver == nil || len(driver.Spec.VolumeLifecycleModes) == 0 {
		return mode == storagev1.VolumeLifecyclePersistent
	}
	for _, listed := range driver.Spec.VolumeLifecycleModes {
		if listed == mode {
			return true
		}
	}
	return false
}

// NeedsAttach reports whether a driver's volumes are attached by its controller
// first; without a CSIDriver object they are.
func NeedsAttach(driver *storagev1.CSIDriver) bool {
	return driver == nil || driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
}
