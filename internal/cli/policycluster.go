package cli

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// policyCluster reads the objects that rules need, from caches. An object that a cache
// lacks is read from the API server, since it may have been created since.
type policyCluster struct {
	core       api.Kubernetes
	namespaces *cluster.Store[*corev1.Namespace]
	drivers    *cluster.Store[*storagev1.CSIDriver]
}

// watchForPolicy fills the caches, and keeps them until ctx ends.
func watchForPolicy(ctx context.Context, kubeconfig, userAgent string, logger *slog.Logger) (policyCluster, error) {
	clients, err := cluster.Connect(kubeconfig, userAgent)
	if err != nil {
		return policyCluster{}, err
	}
	set := cluster.NewSet(clients, "", "", logger)
	c := policyCluster{clients.Core, set.Namespaces(), set.Drivers()}
	set.Start(ctx)
	if err := set.Wait(ctx); err != nil {
		return policyCluster{}, fmt.Errorf("read namespaces and CSIDrivers: %w", err)
	}
	return c, nil
}

// Namespace implements webhook.Cluster.
func (c policyCluster) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	return lookUp(ctx, c.namespaces, c.core.CoreV1().Namespaces(), name)
}

// Driver implements webhook.Cluster.
func (c policyCluster) Driver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	return lookUp(ctx, c.drivers, c.core.StorageV1().CSIDrivers(), name)
}

// lookUp returns the zero value, nil, of what there is not.
func lookUp[T cluster.Object](ctx context.Context, cache *cluster.Store[T], live api.Getter[T], name string) (found T, err error) {
	if object, known := cache.Get(name); known {
		return object, nil
	}
	object, err := live.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	return object, nil
}
