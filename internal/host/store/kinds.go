package store

import (
	"encoding/json"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of the Kubernetes API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is a kind of object in the store: users' objects, and objects that a cluster's
// controllers and kubelets write.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the name in paths of the Kubernetes API, such as
	// persistentvolumeclaims; it is the bucket's name, too.
	Resource   string
	Namespaced bool
	make       func() Object
}

// Decode reads an object of this kind. A Secret or a ConfigMap has no values then: those
// of the stored object, which watchers get, are encrypted.
func (k Kind) Decode(data []byte) (Object, error) {
	object := k.make()
	if err := json.Unmarshal(data, object); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", k.Resource, err)
	}
	return object, nil
}

// New makes an empty object of this kind.
func (k Kind) New() Object { return k.make() }

// NewKind describes a kind that is not a table of the store, such as the events
// that are made from the journal.
func NewKind(gvk schema.GroupVersionKind, resource string, namespaced bool, make func() Object) Kind {
	return Kind{GroupVersionKind: gvk, Resource: resource, Namespaced: namespaced, make: make}
}

// KeyOf is an object's key in its table.
func KeyOf(object metav1.Object) string {
	if object.GetNamespace() == "" {
		return object.GetName()
	}
	return Key(object.GetNamespace(), object.GetName())
}

// Kinds lists every kind, in the order in which objects are applied: what
// others refer to comes first.
func Kinds() []Kind {
	core, storage, snapshot := corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, snapshotv1.SchemeGroupVersion
	return []Kind{
		{core.WithKind("Namespace"), namespaceBucket, false, func() Object { return new(corev1.Namespace) }},
		{core.WithKind("Secret"), secretBucket, true, func() Object { return new(corev1.Secret) }},
		{core.WithKind("ConfigMap"), configMapBucket, true, func() Object { return new(corev1.ConfigMap) }},
		{storage.WithKind("CSIDriver"), driverBucket, false, func() Object { return new(storagev1.CSIDriver) }},
		{storage.WithKind("CSINode"), nodeBucket, false, func() Object { return new(storagev1.CSINode) }},
		{storage.WithKind("StorageClass"), classBucket, false, func() Object { return new(storagev1.StorageClass) }},
		{storage.WithKind("VolumeAttributesClass"), attributesClassBucket, false,
			func() Object { return new(storagev1.VolumeAttributesClass) }},
		{snapshot.WithKind("VolumeSnapshotClass"), snapshotClassBucket, false,
			func() Object { return new(snapshotv1.VolumeSnapshotClass) }},
		{core.WithKind("PersistentVolume"), volumeBucket, false, func() Object { return new(corev1.PersistentVolume) }},
		{snapshot.WithKind("VolumeSnapshotContent"), snapshotContentBucket, false,
			func() Object { return new(snapshotv1.VolumeSnapshotContent) }},
		{core.WithKind("PersistentVolumeClaim"), claimBucket, true,
			func() Object { return new(corev1.PersistentVolumeClaim) }},
		{snapshot.WithKind("VolumeSnapshot"), snapshotBucket, true, func() Object { return new(snapshotv1.VolumeSnapshot) }},
		{storage.WithKind("VolumeAttachment"), attachmentBucket, false,
			func() Object { return new(storagev1.VolumeAttachment) }},
		{core.WithKind("Pod"), podBucket, true, func() Object { return new(corev1.Pod) }},
	}
}

// KindOf finds a kind by its resource name.
func KindOf(resource string) (Kind, bool) {
	for _, kind := range Kinds() {
		if kind.Resource == resource {
			return kind, true
		}
	}
	return Kind{}, false
}
