package claim

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// InlineHandlePrefix begins every inline volume handle; no CreateVolume may
// issue an ID of that form.
const InlineHandlePrefix = "csi-"

// VolumeName is the name of the volume, and of the PersistentVolume, that is
// made for a claim (external-provisioner's default prefix).
func VolumeName(uid types.UID) string { return "pvc-" + string(uid) }

// InlineHandle is the volume_id of an inline volume (pod.spec.volumes[].csi),
// as the kubelet computes it: a plain concatenation, hashed.
func InlineHandle(podUID types.UID, volumeName string) string {
	return InlineHandlePrefix + hash(string(podUID)+volumeName)
}

// AttachmentName is the name of the VolumeAttachment object of a volume on a node.
func AttachmentName(handle, driver, node string) string {
	return "csi-" + hash(handle+driver+node)
}

// EphemeralClaimName is the name of the claim made for a generic ephemeral
// volume (pod.spec.volumes[].ephemeral).
func EphemeralClaimName(podName, volumeName string) string { return podName + "-" + volumeName }

// OwnsEphemeralClaim reports whether a claim was made for this very pod. A claim
// of the right name that was not is never adopted (KEP 1698).
func OwnsEphemeralClaim(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(pvc)
	return owner != nil && owner.UID == pod.UID
}

// UniqueName names a persistent volume within a machine, for any
// PersistentVolume that names it.
func UniqueName(driver, handle string) string { return "kubernetes.io/csi/" + driver + "^" + handle }

// UniqueInlineName names an inline volume within a machine.
func UniqueInlineName(podUID types.UID, volumeName string) string {
	return "kubernetes.io/csi/" + string(podUID) + "-" + volumeName
}

// Sanitise makes a driver's name fit for finalizers and Lease names, as the
// upstream sidecars do: every character outside [A-Za-z0-9-] becomes '-', and a
// result that ends in '-' gets an 'X', since such names must end in a letter or digit.
func Sanitise(driver string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-':
			return r
		}
		return '-'
	}, driver)
	if strings.HasSuffix(clean, "-") {
		return clean + "X"
	}
	return clean
}

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
