package host

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// initialise sets the fields that the API server sets on a new object.
func initialise(kind store.Kind, object store.Object, now metav1.Time) {
	object.SetUID(uuid.NewUUID())
	object.SetCreationTimestamp(now)
	object.SetGeneration(1)
	object.SetSelfLink("")
	object.SetFinalizers(finalizersOf(kind.Kind))
	object.SetManagedFields(ownedOf(kind, object))
	switch object := object.(type) {
	case *corev1.Namespace:
		object.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	case *corev1.PersistentVolume:
		object.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
	case *corev1.PersistentVolumeClaim:
		object.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	case *corev1.Pod:
		object.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case *snapshotv1.VolumeSnapshot:
		object.Status = nil
	case *snapshotv1.VolumeSnapshotContent:
		object.Status = nil
	}
}

// finalizersOf returns the finalizers that a new object gets; controllers add others.
func finalizersOf(kind string) []string {
	switch kind {
	case "PersistentVolumeClaim":
		return []string{manifest.ClaimProtection}
	case "PersistentVolume":
		return []string{manifest.VolumeProtection}
	}
	return nil
}

// keepStatus copies to an object the stored fields that a user cannot set: all but
// name, labels, annotations and spec.
func keepStatus(object, stored store.Object) {
	object.SetUID(stored.GetUID())
	object.SetResourceVersion(stored.GetResourceVersion())
	object.SetCreationTimestamp(stored.GetCreationTimestamp())
	object.SetGeneration(stored.GetGeneration())
	object.SetSelfLink("")
	object.SetFinalizers(stored.GetFinalizers())
	object.SetOwnerReferences(stored.GetOwnerReferences())
	switch object := object.(type) {
	case *corev1.Namespace:
		object.Status = likewise(object, stored).Status
		object.Spec = likewise(object, stored).Spec
	case *corev1.PersistentVolume:
		object.Status = likewise(object, stored).Status
	case *corev1.PersistentVolumeClaim:
		object.Status = likewise(object, stored).Status
	case *corev1.Pod:
		object.Status = likewise(object, stored).Status
	case *snapshotv1.VolumeSnapshot:
		object.Status = likewise(object, stored).Status
	case *snapshotv1.VolumeSnapshotContent:
		object.Status = likewise(object, stored).Status
	}
}

// likewise converts a stored object to the type of another: both have the same key in
// the same table.
func likewise[T any](_ *T, stored store.Object) *T {
	if same, ok := any(stored).(*T); ok {
		return same
	}
	return new(T)
}

// clone copies an object.
func clone(object store.Object) store.Object {
	if copied, ok := object.DeepCopyObject().(store.Object); ok {
		return copied
	}
	return object // a copy has the type of its original
}

// manager is who owns labels and annotations in metadata.managedFields.
const manager = "holdfast-apply"

// owned are the labels and annotations of the last apply, as the API server notes them.
// A label that the next apply lacks is removed; labels that controllers wrote stay.
type owned struct {
	Metadata struct {
		Labels      map[string]struct{} `json:"f:labels,omitempty"`
		Annotations map[string]struct{} `json:"f:annotations,omitempty"`
	} `json:"f:metadata"`
}

func ownedOf(kind store.Kind, object store.Object) []metav1.ManagedFieldsEntry {
	var fields owned
	fields.Metadata.Labels, fields.Metadata.Annotations = prefixed(object.GetLabels()), prefixed(object.GetAnnotations())
	if len(fields.Metadata.Labels)+len(fields.Metadata.Annotations) == 0 {
		return nil
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil // a map of strings can be written
	}
	return []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: kind.GroupVersion().String(),
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw)),
	}}
}

func prefixed(values map[string]string) map[string]struct{} {
	names := map[string]struct{}{}
	for key := range values {
		names["f:"+key] = struct{}{}
	}
	return names
}

// ownedBy reads the labels and annotations of the last apply; none if the note is damaged.
func ownedBy(entries []metav1.ManagedFieldsEntry) (fields owned) {
	at := slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == manager })
	if at < 0 || entries[at].FieldsV1 == nil {
		return owned{}
	}
	if err := json.Unmarshal(entries[at].FieldsV1.GetRawBytes(), &fields); err != nil {
		return owned{}
	}
	return fields
}

// mergeKeys changes labels, or annotations, to the given ones.
func mergeKeys(stored, given map[string]string, owned map[string]struct{}) map[string]string {
	merged := maps.Clone(stored)
	for key := range owned {
		delete(merged, strings.TrimPrefix(key, "f:"))
	}
	if merged == nil && len(given) > 0 {
		merged = map[string]string{}
	}
	maps.Copy(merged, given)
	if len(merged) == 0 {
		return nil
	}
	return merged
}

// isSame reports whether two objects differ only in their spelling.
func isSame(a, b store.Object) bool {
	if equality.Semantic.DeepEqual(a, b) {
		return true
	}
	first, err := json.Marshal(a)
	if err != nil {
		return false
	}
	second, err := json.Marshal(b)
	return err == nil && bytes.Equal(first, second)
}

// AppliedMetadata returns the labels and annotations of an object that were applied, and
// not written by controllers: those that an apply of the whole object has to repeat.
func AppliedMetadata(object store.Object) (labels, annotations map[string]string) {
	fields := ownedBy(object.GetManagedFields())
	return ofOwner(object.GetLabels(), fields.Metadata.Labels), ofOwner(object.GetAnnotations(), fields.Metadata.Annotations)
}

func ofOwner(values map[string]string, owned map[string]struct{}) map[string]string {
	kept := maps.Clone(values)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		_, ok := owned["f:"+key]
		return !ok
	})
	return kept
}
