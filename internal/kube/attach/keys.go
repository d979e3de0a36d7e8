package attach

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/migration"
)

// What this controller writes on a VolumeAttachment before it publishes, together
// with its finalizer (claim.AttacherFinalizer). They are the intent: what must be
// undone even if the volume or the node is deleted meanwhile.
const (
	// NodeIDAnnotation is the driver's ID of the node, as external-attacher writes it.
	NodeIDAnnotation = "csi.alpha.kubernetes.io/node-id"
	// HandleAnnotation is the driver's ID of the volume. external-attacher reads
	// it from the PersistentVolume, and waits for ever if a user has removed that
	// by force (external-attacher issue 235).
	HandleAnnotation = "attach.holdfast.dev/volume-handle"
	// SecretNameAnnotation and SecretNamespaceAnnotation name the secret that
	// the driver requires; they are absent if it requires none.
	SecretNameAnnotation      = "attach.holdfast.dev/secret-name"
	SecretNamespaceAnnotation = "attach.holdfast.dev/secret-namespace"
	// TraceparentAnnotation is the trace of the attachment, which a process after a crash
	// continues; it is absent if no traces are exported.
	TraceparentAnnotation = "attach.holdfast.dev/traceparent"
)

// intent is the record that an attachment gets before its volume is published.
type intent struct {
	node, handle string
	secret       *corev1.SecretReference
	trace        string // W3C traceparent
}

// intentOf reads the annotations; absent ones are empty.
func intentOf(va *storagev1.VolumeAttachment) intent {
	r := intent{
		node: va.Annotations[NodeIDAnnotation], handle: va.Annotations[HandleAnnotation], trace: va.Annotations[TraceparentAnnotation],
	}
	if name := va.Annotations[SecretNameAnnotation]; name != "" {
		r.secret = &corev1.SecretReference{Name: name, Namespace: va.Annotations[SecretNamespaceAnnotation]}
	}
	return r
}

// annotations is the reverse of intentOf; "" marks an annotation to delete.
func (r intent) annotations() map[string]string {
	written := map[string]string{
		NodeIDAnnotation: r.node, HandleAnnotation: r.handle, SecretNameAnnotation: "", SecretNamespaceAnnotation: "",
		TraceparentAnnotation: r.trace,
	}
	if r.secret != nil {
		written[SecretNameAnnotation], written[SecretNamespaceAnnotation] = r.secret.Name, r.secret.Namespace
	}
	return written
}

// writtenOn reports whether the attachment has these annotations already.
func (r intent) writtenOn(va *storagev1.VolumeAttachment) bool {
	for key, value := range r.annotations() {
		if va.Annotations[key] != value {
			return false
		}
	}
	return true
}

// patch is the merge patch that writes the intent and the finalizer. It names
// the version it was made for, since it writes the list of finalizers as a whole.
func (r intent) patch(va *storagev1.VolumeAttachment, finalizer string) map[string]any {
	annotations := map[string]any{}
	for key, value := range r.annotations() {
		if value != "" {
			annotations[key] = value
		} else if _, ok := va.Annotations[key]; ok {
			annotations[key] = nil
		}
	}
	metadata := map[string]any{"resourceVersion": va.ResourceVersion, "annotations": annotations}
	if !slices.Contains(va.Finalizers, finalizer) {
		metadata["finalizers"] = append(slices.Clone(va.Finalizers), finalizer)
	}
	return map[string]any{"metadata": metadata}
}

func (c *Controller) hasFinalizer(object interface{ GetFinalizers() []string }) bool {
	return slices.Contains(object.GetFinalizers(), c.finalizer)
}

// isMigrated reports whether a driver is meant to serve the volume of an in-tree plugin,
// and the clients of this process do not translate it.
func isMigrated(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI == nil && pv.Annotations[migration.MigratedToAnnotation] != ""
}

// volumeName is the PersistentVolume of an attachment, "" for an inline one.
func volumeName(va *storagev1.VolumeAttachment) string {
	if name := va.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}
