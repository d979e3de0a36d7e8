package apiserver

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/util/watchlist"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
)

// Narrow makes of a clientset, such as client-go's fake, what the code under
// test takes. It is for tests on a clock of their own (testing/synctest), which
// an API server that speaks HTTP does not run on; the others use New.
func Narrow(clients kubernetes.Interface) api.Kubernetes { return narrow{clients} }

type narrow struct{ clients kubernetes.Interface }

func (n narrow) CoreV1() api.CoreV1       { return narrowCore{n.clients.CoreV1()} }
func (n narrow) StorageV1() api.StorageV1 { return narrowStorage{n.clients.StorageV1()} }
func (n narrow) CoordinationV1() api.CoordinationV1 {
	return narrowCoordination{n.clients.CoordinationV1()}
}
func (n narrow) AuthorizationV1() api.AuthorizationV1 {
	return narrowAuthorization{n.clients.AuthorizationV1()}
}
func (n narrow) AppsV1() api.AppsV1 { return narrowApps{n.clients.AppsV1()} }

func (n narrow) AdmissionV1() api.AdmissionV1 {
	return narrowAdmission{n.clients.AdmissionregistrationV1()}
}

func (n narrow) Served(_ context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	return n.clients.Discovery().ServerResourcesForGroupVersion(version.String())
}

// IsWatchListSemanticsUnSupported is what informers ask of a client; fakes say so.
func (n narrow) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(n.clients)
}

type narrowCore struct{ client coreclient.CoreV1Interface }

func (n narrowCore) ConfigMaps(namespace string) api.Resource[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return n.client.ConfigMaps(namespace)
}

func (n narrowCore) Events(namespace string) api.Resource[*corev1.Event, *corev1.EventList] {
	return n.client.Events(namespace)
}

func (n narrowCore) Namespaces() api.Reader[*corev1.Namespace, *corev1.NamespaceList] {
	return n.client.Namespaces()
}

func (n narrowCore) Nodes() api.Resource[*corev1.Node, *corev1.NodeList] { return n.client.Nodes() }

func (n narrowCore) PersistentVolumeClaims(
	namespace string,
) api.Resource[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList] {
	return n.client.PersistentVolumeClaims(namespace)
}

func (n narrowCore) PersistentVolumes() api.Resource[*corev1.PersistentVolume, *corev1.PersistentVolumeList] {
	return n.client.PersistentVolumes()
}

func (n narrowCore) Pods(namespace string) api.Reader[*corev1.Pod, *corev1.PodList] {
	return n.client.Pods(namespace)
}

func (n narrowCore) Secrets(namespace string) api.Getter[*corev1.Secret] {
	return n.client.Secrets(namespace)
}

type narrowStorage struct {
	client storageclient.StorageV1Interface
}

func (n narrowStorage) CSIDrivers() api.Reader[*storagev1.CSIDriver, *storagev1.CSIDriverList] {
	return n.client.CSIDrivers()
}

func (n narrowStorage) CSINodes() api.Reader[*storagev1.CSINode, *storagev1.CSINodeList] {
	return n.client.CSINodes()
}

func (n narrowStorage) CSIStorageCapacities(
	namespace string,
) api.Resource[*storagev1.CSIStorageCapacity, *storagev1.CSIStorageCapacityList] {
	return n.client.CSIStorageCapacities(namespace)
}

func (n narrowStorage) StorageClasses() api.Reader[*storagev1.StorageClass, *storagev1.StorageClassList] {
	return n.client.StorageClasses()
}

func (n narrowStorage) VolumeAttachments() api.Resource[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList] {
	return n.client.VolumeAttachments()
}

func (n narrowStorage) VolumeAttributesClasses() api.Reader[*storagev1.VolumeAttributesClass, *storagev1.VolumeAttributesClassList] {
	return n.client.VolumeAttributesClasses()
}

type narrowCoordination struct {
	client coordinationclient.CoordinationV1Interface
}

func (n narrowCoordination) Leases(namespace string) api.Resource[*coordinationv1.Lease, *coordinationv1.LeaseList] {
	return n.client.Leases(namespace)
}

type narrowAuthorization struct {
	client authorizationclient.AuthorizationV1Interface
}

func (n narrowAuthorization) SelfSubjectAccessReviews() api.Creator[*authorizationv1.SelfSubjectAccessReview] {
	return n.client.SelfSubjectAccessReviews()
}

func (n narrowAuthorization) SelfSubjectRulesReviews() api.Creator[*authorizationv1.SelfSubjectRulesReview] {
	return n.client.SelfSubjectRulesReviews()
}

type narrowApps struct{ client appsclient.AppsV1Interface }

func (n narrowApps) ReplicaSets(namespace string) api.Getter[*appsv1.ReplicaSet] {
	return n.client.ReplicaSets(namespace)
}

type narrowAdmission struct {
	client admissionclient.AdmissionregistrationV1Interface
}

func (n narrowAdmission) MutatingAdmissionPolicies() api.Getter[*metav1.PartialObjectMetadata] {
	return metadata[*admissionv1.MutatingAdmissionPolicy]{n.client.MutatingAdmissionPolicies()}
}

func (n narrowAdmission) MutatingAdmissionPolicyBindings() api.Getter[*metav1.PartialObjectMetadata] {
	return metadata[*admissionv1.MutatingAdmissionPolicyBinding]{n.client.MutatingAdmissionPolicyBindings()}
}

// metadata answers with the metadata of objects.
type metadata[T api.Object] struct{ objects api.Getter[T] }

func (m metadata[T]) Get(ctx context.Context, name string, options metav1.GetOptions) (*metav1.PartialObjectMetadata, error) {
	object, err := m.objects.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	found, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	return meta.AsPartialObjectMetadata(found), nil
}
