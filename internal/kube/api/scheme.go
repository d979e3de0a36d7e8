package api

import (
	"fmt"

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

	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// NewScheme registers the kinds of the groups of this package.
func NewScheme() (*runtime.Scheme, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme,
		authorizationv1.AddToScheme, appsv1.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			return nil, fmt.Errorf("kinds of the Kubernetes API: %w", err)
		}
	}
	for _, version := range []string{"v1", "v1beta1"} {
		gateway := schema.GroupVersion{Group: grant.Group, Version: version}
		kinds.AddKnownTypes(gateway, &grant.ReferenceGrant{}, &grant.ReferenceGrantList{})
		metav1.AddToGroupVersion(kinds, gateway)
	}
	return kinds, nil
}
