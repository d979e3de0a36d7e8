// Package api is the part of the Kubernetes API that Holdfast uses: typed
// clients for its groups, kinds and verbs, under the names that client-go's
// clientsets give them.
//
// The clientsets themselves are in no binary. client-go/kubernetes registers all
// of Kubernetes' API groups, some sixty, and registered code can be reached,
// so the linker keeps the code of all their kinds: 9 MB of machine code and
// tables, and their share of every process's memory. This package registers six
// groups. Requests are made by client-go's own rest and gentype packages, so
// that they are the same byte for byte; a test compares them.
package api

import (
	"context"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// Kubernetes is Kubernetes' own API.
type Kubernetes interface {
	CoreV1() CoreV1
	StorageV1() StorageV1
	CoordinationV1() CoordinationV1
	AuthorizationV1() AuthorizationV1
	AppsV1() AppsV1
	AdmissionV1() AdmissionV1
	// Served lists the resources of a group's version, its custom ones as well.
	// A group that is not served is an error that apierrors.IsNotFound recognises.
	Served(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error)
}

// CoreV1 is the group "", version v1.
type CoreV1 interface {
	ConfigMaps(namespace string) Resource[*corev1.ConfigMap, *corev1.ConfigMapList]
	Events(namespace string) Resource[*corev1.Event, *corev1.EventList]
	Namespaces() Reader[*corev1.Namespace, *corev1.NamespaceList]
	Nodes() Resource[*corev1.Node, *corev1.NodeList]
	PersistentVolumeClaims(namespace string) Resource[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList]
	PersistentVolumes() Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList]
	Pods(namespace string) Reader[*corev1.Pod, *corev1.PodList]
	Secrets(namespace string) Getter[*corev1.Secret]
}

// StorageV1 is the group storage.k8s.io, version v1.
type StorageV1 interface {
	CSIDrivers() Reader[*storagev1.CSIDriver, *storagev1.CSIDriverList]
	CSINodes() Reader[*storagev1.CSINode, *storagev1.CSINodeList]
	CSIStorageCapacities(namespace string) Resource[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList]
	StorageClasses() Reader[*storagev1.StorageClass, *storagev1.StorageClassList]
	VolumeAttachments() Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList]
	VolumeAttributesClasses() Reader[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList]
}

// CoordinationV1 is the group coordination.k8s.io, version v1.
type CoordinationV1 interface {
	Leases(namespace string) Resource[*coordinationv1.Lease, *coordinationv1.LeaseList]
}

// AuthorizationV1 is the group authorization.k8s.io, version v1: questions about
// the own rights, which are asked by creating them.
type AuthorizationV1 interface {
	SelfSubjectAccessReviews() Creator[*authorizationv1.SelfSubjectAccessReview]
	SelfSubjectRulesReviews() Creator[*authorizationv1.SelfSubjectRulesReview]
}

// AppsV1 is the group apps, version v1.
type AppsV1 interface {
	ReplicaSets(namespace string) Getter[*appsv1.ReplicaSet]
}

// AdmissionV1 is the group admissionregistration.k8s.io, version v1: the metadata of its
// objects.
type AdmissionV1 interface {
	MutatingAdmissionPolicies() Getter[*metav1.PartialObjectMetadata]
	MutatingAdmissionPolicyBindings() Getter[*metav1.PartialObjectMetadata]
}

// Snapshots is the API of the custom resources for snapshots.
type Snapshots interface {
	SnapshotV1() SnapshotV1
	GroupsnapshotV1() GroupsnapshotV1
}

// SnapshotV1 is the group snapshot.storage.k8s.io, version v1.
type SnapshotV1 interface {
	VolumeSnapshots(namespace string) Resource[*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotList]
	VolumeSnapshotClasses() Reader[*snapshotv1.VolumeSnapshotClass, *snapshotv1.VolumeSnapshotClassList]
	VolumeSnapshotContents() Resource[*snapshotv1.VolumeSnapshotContent, *snapshotv1.VolumeSnapshotContentList]
}

// GroupsnapshotV1 is the group groupsnapshot.storage.k8s.io, version v1.
type GroupsnapshotV1 interface {
	VolumeGroupSnapshotClasses() Reader[*groupv1.VolumeGroupSnapshotClass, *groupv1.VolumeGroupSnapshotClassList]
	VolumeGroupSnapshotContents() Resource[*groupv1.VolumeGroupSnapshotContent, *groupv1.VolumeGroupSnapshotContentList]
}

// Gateway is the API of Gateway API's custom resources. Which of the versions a cluster
// serves is found by Kubernetes.Served.
type Gateway interface {
	GatewayV1() GatewayVersion
	GatewayV1beta1() GatewayVersion
}

// GatewayVersion is a version of the group gateway.networking.k8s.io.
type GatewayVersion interface {
	ReferenceGrants(namespace string) Reader[*grant.ReferenceGrant, *grant.ReferenceGrantList]
}

// Object is an object of the API server.
type Object interface {
	metav1.Object
	runtime.Object
}

// Getter reads one object.
type Getter[T Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}

// Reader reads one kind; L is the type of its lists.
type Reader[T Object, L runtime.Object] interface {
	Getter[T]
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Creator creates objects and returns the API server's answer.
type Creator[T Object] interface {
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
}

// Writer creates and changes objects and returns the API server's answer.
type Writer[T Object] interface {
	Creator[T]
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Patch(
		ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string,
	) (T, error)
}

// Resource reads, makes, changes and deletes objects of one kind.
type Resource[T Object, L runtime.Object] interface {
	Reader[T, L]
	Writer[T]
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}
