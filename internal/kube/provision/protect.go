package provision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func has(finalizers []string, finalizer string) bool { return slices.Contains(finalizers, finalizer) }

// protectClaim returns the claim as it is with the finalizer.
func (c *Controller) protectClaim(ctx context.Context, source *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	ops := cluster.AddFinalizers(source, lifecycle.CloneFinalizer)
	if ops == nil {
		return source, nil
	}
	written, err := c.env.Core.CoreV1().PersistentVolumeClaims(source.Namespace).
		Patch(ctx, source.Name, types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("keep %s, which is being cloned: %w", claim.Describe(source), err)
	}
	c.claims.Wrote(written)
	return written, nil
}

// protectSnapshot continues without the finalizer if the cluster does not
// allow it: old manifests of drivers lack the right.
func (c *Controller) protectSnapshot(ctx context.Context, source *snapshotv1.VolumeSnapshot) (*snapshotv1.VolumeSnapshot, error) {
	ops := cluster.AddFinalizers(source, lifecycle.RestoreFinalizer)
	if ops == nil {
		return source, nil
	}
	written, err := c.env.Snapshots.SnapshotV1().VolumeSnapshots(source.Namespace).
		Patch(ctx, source.Name, types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	if apierrors.IsForbidden(err) {
		c.log.WarnContext(ctx, "a snapshot that is being restored cannot be kept from deletion", "snapshot", cluster.KeyOf(source), "error", err)
		return source, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep VolumeSnapshot %q, which is being restored: %w", cluster.KeyOf(source), err)
	}
	c.snapshots.Wrote(written)
	return written, nil
}

// spread is for how long, at most, a node leaves it to others to let a snapshot
// go: all of them see that it may.
const spread = 5 * time.Second

// syncSource takes the finalizer off a source that nothing is made of any more.
// The key is that of cluster.ClaimBySource.
func (c *Controller) syncSource(ctx context.Context, key string) (time.Duration, error) {
	source, finalizer := c.protected(key)
	if source == nil || !has(source.GetFinalizers(), finalizer) || c.inUse(key) || c.elsewhereByCache(source) {
		return 0, nil
	}
	if !c.env.Scope.Central() && c.progress.shouldReport(source.GetUID(), "to be let go") {
		return rand.N(spread), nil
	}
	if copied, err := c.copies(ctx, source); err != nil || !copied {
		return 0, err
	}
	c.progress.forget(source.GetUID())
	patch := cluster.JSONPatch(cluster.RemoveFinalizers(source, finalizer)...)
	if err := c.patchSource(ctx, source, patch); err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("let %s go, which nothing is made of any more: %w", key, err)
	}
	return 0, nil
}

// elsewhereByCache reports whether another node is known to have a source, so that
// this one need not ask the API server.
func (c *Controller) elsewhereByCache(source cluster.Object) bool {
	if c.env.Scope.Central() {
		return false
	}
	switch source := source.(type) {
	case *corev1.PersistentVolumeClaim:
		node := selectedNode(source)
		return node != "" && node != c.env.Scope.Node
	case *snapshotv1.VolumeSnapshot:
		if source.Status == nil || source.Status.BoundVolumeSnapshotContentName == nil {
			return false
		}
		content, found := c.contents.Get(*source.Status.BoundVolumeSnapshotContentName)
		return found && !c.hasSnapshot(content)
	}
	return false
}

// protected finds a source and the finalizer that keeps it; nil if it is gone.
func (c *Controller) protected(key string) (cluster.Object, string) {
	kind, name, _ := strings.Cut(key, "/")
	switch {
	case kind == "PersistentVolumeClaim":
		if pvc, found := c.claims.Get(name); found {
			return pvc, lifecycle.CloneFinalizer
		}
	case kind == "VolumeSnapshot" && c.snapshots != nil:
		if snapshot, found := c.snapshots.Get(name); found {
			return snapshot, lifecycle.RestoreFinalizer
		}
	}
	return nil, ""
}

// copies reports whether this process copies a source. The finalizers are the same for
// all drivers, and each removes its own. Any process removes them from a source whose
// volume or content is gone.
func (c *Controller) copies(ctx context.Context, source cluster.Object) (bool, error) {
	switch source := source.(type) {
	case *corev1.PersistentVolumeClaim:
		if volume, known := c.volumes.Get(source.Spec.VolumeName); known {
			return volume.Spec.CSI != nil && volume.Spec.CSI.Driver == c.env.Driver && c.env.Scope.OwnsVolume(volume), nil
		}
		return driverOf(source) == "" || c.ours(source), nil
	case *snapshotv1.VolumeSnapshot:
		if source.Status == nil || source.Status.BoundVolumeSnapshotContentName == nil {
			return true, nil
		}
		content, err := c.env.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(ctx, *source.Status.BoundVolumeSnapshotContentName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("whose snapshot is %s: %w", cluster.KeyOf(source), err)
		}
		return content.Spec.Driver == c.env.Driver, nil
	}
	return false, nil
}

// inUse reports whether something is being made of a source, or will be: a claim
// that waits for it, or a volume in progress whose claim is gone.
func (c *Controller) inUse(key string) bool {
	for _, pvc := range c.claims.By(cluster.ClaimBySource(), key) {
		if c.pending(pvc) && pvc.DeletionTimestamp == nil {
			return true
		}
	}
	for _, left := range c.intents.All() {
		if left.Source == key {
			return true
		}
	}
	return false
}

func (c *Controller) patchSource(ctx context.Context, source cluster.Object, patch []byte) error {
	switch source := source.(type) {
	case *corev1.PersistentVolumeClaim:
		written, err := c.env.Core.CoreV1().PersistentVolumeClaims(source.Namespace).
			Patch(ctx, source.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		if err == nil {
			c.claims.Wrote(written)
		}
		return err
	case *snapshotv1.VolumeSnapshot:
		written, err := c.env.Snapshots.SnapshotV1().VolumeSnapshots(source.Namespace).
			Patch(ctx, source.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		if err == nil {
			c.snapshots.Wrote(written)
		}
		return err
	}
	return nil
}
