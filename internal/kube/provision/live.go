package provision

import (
	"context"
	"fmt"
	"iter"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// With cluster.Scope.Labelled the caches have the objects of this node only. Others, such
// as the source of a claim, are read from the API server.

// claimNamed finds a claim by "namespace/name"; nil if it does not exist.
func (c *Controller) claimNamed(ctx context.Context, key string) (*corev1.PersistentVolumeClaim, error) {
	if pvc, found := c.claims.Get(key); found || !c.env.Scope.Labelled {
		return pvc, nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	live, err := c.env.Core.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	return orNil(live, err, "PersistentVolumeClaim", key)
}

// claimOf returns the claim of an intent, nil if it is gone. A claim that the cache lacks
// may have been selected for another node, or lack its label.
func (c *Controller) claimOf(
	ctx context.Context, cached *corev1.PersistentVolumeClaim, intent volumeIntent,
) (*corev1.PersistentVolumeClaim, error) {
	if cached != nil || !c.env.Scope.Labelled {
		return cached, nil
	}
	live, err := c.claimNamed(ctx, intent.claimKey())
	if err != nil || live == nil || live.UID != intent.Volume.Spec.ClaimRef.UID {
		return nil, err
	}
	return live, nil
}

// volumeNamed finds a PersistentVolume; nil if it does not exist.
func (c *Controller) volumeNamed(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if pv, found := c.volumes.Get(name); found || !c.env.Scope.Labelled || name == "" {
		return pv, nil
	}
	live, err := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	return orNil(live, err, "PersistentVolume", name)
}

// snapshotNamed finds a VolumeSnapshot by "namespace/name"; nil if it does not exist.
func (c *Controller) snapshotNamed(ctx context.Context, key string) (*snapshotv1.VolumeSnapshot, error) {
	if c.snapshots != nil {
		snapshot, _ := c.snapshots.Get(key)
		return snapshot, nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	live, err := c.env.Snapshots.SnapshotV1().VolumeSnapshots(namespace).Get(ctx, name, metav1.GetOptions{})
	return orNil(live, err, "VolumeSnapshot", key)
}

// orNil returns a live object, nil for one that the API server does not have.
func orNil[T any](object *T, err error, kind, key string) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %q: %w", kind, key, err)
	}
	return object, nil
}

// patchSnapshot patches a VolumeSnapshot, cached or not.
func (c *Controller) patchSnapshot(
	ctx context.Context, snapshot *snapshotv1.VolumeSnapshot, ops []cluster.Op,
) (*snapshotv1.VolumeSnapshot, error) {
	snapshots := c.env.Snapshots.SnapshotV1().VolumeSnapshots(snapshot.Namespace)
	if c.snapshots == nil {
		return cluster.PatchLive(ctx, snapshots, snapshot, ops...)
	}
	return c.snapshots.Patch(ctx, snapshots, snapshot, ops...)
}

// ofDriver reports whether a PersistentVolume has a volume of the driver.
func (c *Controller) ofDriver(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.env.Driver
}

// unwatchedTwin returns the name of a PersistentVolume that names the same volume and that
// this process does not watch: an administrator has just written it, and it is not labelled
// yet, or it is labelled for another node although several can have the volume. The deletion
// that follows cannot be undone.
func (c *Controller) unwatchedTwin(ctx context.Context, pv *corev1.PersistentVolume) (twin string, err error) {
	if c.unlabelled == nil {
		return "", nil
	}
	if label := pv.Labels[claim.NodeLabel]; label == claim.AnyNode || label == claim.UnknownNode {
		err = c.volumes.Read(ctx, "", func(all iter.Seq[*corev1.PersistentVolume]) {
			twin = lifecycle.FindTwin(all, pv, c.elsewhereVolume)
		})
		return twin, err
	}
	volumes, err := c.unlabelled.List(ctx)
	return lifecycle.FindTwin(volumes, pv, c.elsewhereVolume), err
}
