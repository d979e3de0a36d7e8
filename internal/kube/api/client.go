package api

import (
	"context"
	"fmt"
	"net/http"

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
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// NewKubernetes makes the clients of Kubernetes' own groups. They share one
// connection, of the configuration's content type.
func NewKubernetes(config *rest.Config) (Kubernetes, error) {
	m, err := newMaker(config)
	if err != nil {
		return nil, err
	}
	c := kubernetes{
		core: m.group("/api", corev1.SchemeGroupVersion), storage: m.group("/apis", storagev1.SchemeGroupVersion),
		coordination:  m.group("/apis", coordinationv1.SchemeGroupVersion),
		authorization: m.group("/apis", authorizationv1.SchemeGroupVersion), apps: m.group("/apis", appsv1.SchemeGroupVersion),
	}
	return c, m.err
}

// NewSnapshots makes the clients of the custom resources for snapshots, which
// are served as JSON only.
func NewSnapshots(config *rest.Config) (Snapshots, error) {
	m, err := newMaker(config)
	if err != nil {
		return nil, err
	}
	return snapshots{volumes: m.group("/apis", snapshotv1.SchemeGroupVersion), groups: m.group("/apis", groupv1.SchemeGroupVersion)}, m.err
}

// NewGateway makes the clients of Gateway API's custom resources, which are served as
// JSON only.
func NewGateway(config *rest.Config) (Gateway, error) {
	m, err := newMaker(config)
	if err != nil {
		return nil, err
	}
	return gateway{
		v1:      m.group("/apis", schema.GroupVersion{Group: grant.Group, Version: "v1"}),
		v1beta1: m.group("/apis", schema.GroupVersion{Group: grant.Group, Version: "v1beta1"}),
	}, m.err
}

// maker makes clients of groups, until it fails.
type maker struct {
	config     *rest.Config
	connection *http.Client
	kinds      *runtime.Scheme
	err        error
}

func newMaker(config *rest.Config) (*maker, error) {
	own := rest.CopyConfig(config)
	if own.UserAgent == "" {
		own.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	kinds, err := NewScheme()
	if err != nil {
		return nil, err
	}
	own.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(kinds, serializer.NewCodecFactory(kinds)).WithoutConversion()
	connection, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("transport to the API server: %w", err)
	}
	return &maker{config: own, connection: connection, kinds: kinds}, nil
}

func (m *maker) group(path string, version schema.GroupVersion) group {
	own := *m.config
	own.APIPath, own.GroupVersion = path, &version
	client, err := rest.RESTClientForConfigAndClient(&own, m.connection)
	if err != nil && m.err == nil {
		m.err = fmt.Errorf("client of API group %s: %w", version, err)
	}
	return group{client: client, options: runtime.NewParameterCodec(m.kinds)}
}

// group is one version of one group.
type group struct {
	client  rest.Interface
	options runtime.ParameterCodec
}

// kubernetes is its groups.
type kubernetes struct{ core, storage, coordination, authorization, apps group }

func (k kubernetes) CoreV1() CoreV1                   { return core{k.core} }
func (k kubernetes) StorageV1() StorageV1             { return storage{k.storage} }
func (k kubernetes) CoordinationV1() CoordinationV1   { return coordination{k.coordination} }
func (k kubernetes) AuthorizationV1() AuthorizationV1 { return authorization{k.authorization} }
func (k kubernetes) AppsV1() AppsV1                   { return apps{k.apps} }
func (k kubernetes) AdmissionV1() AdmissionV1         { return admission{k.core} }

func (k kubernetes) Served(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error) {
	found := &metav1.APIResourceList{}
	err := k.core.client.Get().AbsPath("/apis", version.Group, version.Version).Do(ctx).Into(found)
	return found, err
}

type snapshots struct{ volumes, groups group }

func (s snapshots) SnapshotV1() SnapshotV1           { return volumeSnapshots{s.volumes} }
func (s snapshots) GroupsnapshotV1() GroupsnapshotV1 { return groupSnapshots{s.groups} }

type gateway struct{ v1, v1beta1 group }

func (g gateway) GatewayV1() GatewayVersion      { return gatewayVersion{g.v1} }
func (g gateway) GatewayV1beta1() GatewayVersion { return gatewayVersion{g.v1beta1} }
