package api

import (
	"context"
	"encoding/json"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// pointer is an object of type T, by its address.
type pointer[T any] interface {
	*T
	Object
}

// listPointer is a list of type L, by its address.
type listPointer[L any] interface {
	*L
	runtime.Object
}

// full is a client of a kind; its namespace is "" for all of them and for kinds
// without one.
func full[T, L any, P pointer[T], Q listPointer[L]](
	g group, resource, namespace string,
) *gentype.ClientWithList[P, Q] {
	return gentype.NewClientWithList(resource, g.client, g.options, namespace, func() P { return new(T) }, func() Q { return new(L) })
}

// single is a client of a kind that is not listed.
func single[T any, P pointer[T]](g group, resource, namespace string) *gentype.Client[P] {
	return gentype.NewClient(resource, g.client, g.options, namespace, func() P { return new(T) })
}

type core struct{ group }

func (g core) ConfigMaps(namespace string) Resource[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return full[corev1.ConfigMap, corev1.ConfigMapList](g.group, "configmaps", namespace)
}

func (g core) Events(namespace string) Resource[*corev1.Event, *corev1.EventList] {
	return full[corev1.Event, corev1.EventList](g.group, "events", namespace)
}

func (g core) Namespaces() Reader[*corev1.Namespace, *corev1.NamespaceList] {
	return full[corev1.Namespace, corev1.NamespaceList](g.group, "namespaces", "")
}

func (g core) Nodes() Resource[*corev1.Node, *corev1.NodeList] {
	return full[corev1.Node, corev1.NodeList](g.group, "nodes", "")
}

func (g core) PersistentVolumeClaims(
	namespace string,
) Resource[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList] {
	return full[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList](g.group, "persistentvolumeclaims", namespace)
}

func (g core) PersistentVolumes() Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return full[corev1.PersistentVolume, corev1.PersistentVolumeList](g.group, "persistentvolumes", "")
}

func (g core) Pods(namespace string) Reader[*corev1.Pod, *corev1.PodList] {
	return full[corev1.Pod, corev1.PodList](g.group, "pods", namespace)
}

func (g core) Secrets(namespace string) Getter[*corev1.Secret] {
	return single[corev1.Secret](g.group, "secrets", namespace)
}

type storage struct{ group }

func (g storage) CSIDrivers() Reader[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return full[storagev1.CSIDriver, storagev1.CSIDriverList](g.group, "csidrivers", "")
}

func (g storage) CSINodes() Reader[*storagev1.CSINode, *storagev1.CSINodeList] {
	return full[storagev1.CSINode, storagev1.CSINodeList](g.group, "csinodes", "")
}

func (g storage) CSIStorageCapacities(
	namespace string,
) Resource[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList] {
	return full[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](g.group, "csistoragecapacities", namespace)
}

func (g storage) StorageClasses() Reader[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return full[storagev1.StorageClass, storagev1.StorageClassList](g.group, "storageclasses", "")
}

func (g storage) VolumeAttachments() Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return full[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList](g.group, "volumeattachments", "")
}

func (g storage) VolumeAttributesClasses() Reader[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList] {
	return full[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList](g.group, "volumeattributesclasses", "")
}

type coordination struct{ group }

func (g coordination) Leases(namespace string) Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return full[coordinationv1.Lease, coordinationv1.LeaseList](g.group, "leases", namespace)
}

type authorization struct{ group }

func (g authorization) SelfSubjectAccessReviews() Creator[*authorizationv1.SelfSubjectAccessReview] {
	return single[authorizationv1.SelfSubjectAccessReview](g.group, "selfsubjectaccessreviews", "")
}

func (g authorization) SelfSubjectRulesReviews() Creator[*authorizationv1.SelfSubjectRulesReview] {
	return single[authorizationv1.SelfSubjectRulesReview](g.group, "selfsubjectrulesreviews", "")
}

type apps struct{ group }

func (g apps) ReplicaSets(namespace string) Getter[*appsv1.ReplicaSet] {
	return single[appsv1.ReplicaSet](g.group, "replicasets", namespace)
}

// admission reads metadata alone, so that the group's kinds are not registered.
type admission struct{ group }

func (g admission) MutatingAdmissionPolicies() Getter[*metav1.PartialObjectMetadata] {
	return metadata{g.group, "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"}
}

func (g admission) MutatingAdmissionPolicyBindings() Getter[*metav1.PartialObjectMetadata] {
	return metadata{g.group, "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"}
}

// metadata reads the metadata of a kind without namespace.
type metadata struct {
	group
	path string
}

// onlyMetadata is what client-go's metadata client accepts.
const onlyMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

func (m metadata) Get(ctx context.Context, name string, options metav1.GetOptions) (*metav1.PartialObjectMetadata, error) {
	found := &metav1.PartialObjectMetadata{}
	answer, err := m.client.Get().AbsPath(m.path, name).SetHeader("Accept", onlyMetadata).
		VersionedParams(&options, m.options).Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(answer, found)
	}
	return found, err
}

type volumeSnapshots struct{ group }

func (g volumeSnapshots) VolumeSnapshots(
	namespace string,
) Resource[*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotList] {
	return full[snapshotv1.VolumeSnapshot, snapshotv1.VolumeSnapshotList](g.group, "volumesnapshots", namespace)
}

func (g volumeSnapshots) VolumeSnapshotClasses() Reader[*snapshotv1.VolumeSnapshotClass, *snapshotv1.VolumeSnapshotClassList] {
	return full[snapshotv1.VolumeSnapshotClass, snapshotv1.VolumeSnapshotClassList](g.group, "volumesnapshotclasses", "")
}

func (g volumeSnapshots) VolumeSnapshotContents() Resource[*snapshotv1.VolumeSnapshotContent, *snapshotv1.VolumeSnapshotContentList] {
	return full[snapshotv1.VolumeSnapshotContent, snapshotv1.VolumeSnapshotContentList](g.group, "volumesnapshotcontents", "")
}

type groupSnapshots struct{ group }

func (g groupSnapshots) VolumeGroupSnapshotClasses() Reader[*groupv1.VolumeGroupSnapshotClass, *groupv1.VolumeGroupSnapshotClassList] {
	return full[groupv1.VolumeGroupSnapshotClass, groupv1.VolumeGroupSnapshotClassList](g.group, "volumegroupsnapshotclasses", "")
}

func (g groupSnapshots) VolumeGroupSnapshotContents() Resource[*groupv1.VolumeGroupSnapshotContent, *groupv1.VolumeGroupSnapshotContentList] {
	return full[groupv1.VolumeGroupSnapshotContent, groupv1.VolumeGroupSnapshotContentList](g.group, "volumegroupsnapshotcontents", "")
}

type gatewayVersion struct{ group }

func (g gatewayVersion) ReferenceGrants(namespace string) Reader[*grant.ReferenceGrant, *grant.ReferenceGrantList] {
	return full[grant.ReferenceGrant, grant.ReferenceGrantList](g.group, "referencegrants", namespace)
}
