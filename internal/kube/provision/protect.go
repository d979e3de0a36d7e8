package provision

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

func has(finalizers []string, finalizer string) bool { return slices.Contains(finalizers, finalizer) }

// protectClaim returns the claim as it is with the finalizer.
func (c *Controller) protectClaim(
	ctx context.Context, source *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, error) {
	ops := cluster.AddFinalizers(source, lifecycle.CloneFinalizer)
	if ops == nil {
		return source, nil
	}
	written, err := c.claims.Patch(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(source.Namespace), source, ops...)
	if err != nil {
		return nil, fmt.Errorf("keep %s, which is being cloned: %w", claim.Describe(source), err)
	}
	return written, nil
}

// protectSnapshot continues without the finalizer if the cluster does not
// allow it: old manifests of drivers lack the right.
func (c *Controller) protectSnapshot(
	ctx context.Context, source *snapshotv1.VolumeSnapshot,
) (*snapshotv1.VolumeSnapshot, error) {
	ops := cluster.AddFinalizers(source, lifecycle.RestoreFinalizer)
	if ops == nil {
		return source, nil
	}
	written, err := c.patchSnapshot(ctx, source, ops)
	if apierrors.IsForbidden(err) {
		c.log.WarnContext(ctx, "a snapshot that is being restored cannot be kept from deletion",
			"snapshot", cluster.KeyOf(source), "error", err)
		return source, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep VolumeSnapshot %q, which is being restored: %w", cluster.KeyOf(source), err)
	}
	return written, nil
}

// spread is how long, at most, a node waits for others to remove the finalizer of a
// source: all nodes see that it is not copied.
const spread = 5 * time.Second

// syncSource removes the finalizer of a source that is not copied any more. The key is
// that of cluster.ClaimBySource.
func (c *Controller) syncSource(ctx context.Context, key string) (time.Duration, error) {
	source, finalizer, err := c.protected(ctx, key)
	if err != nil || source == nil || !has(source.GetFinalizers(), finalizer) || c.elsewhereByCache(source) {
		return 0, err
	}
	if c.inUse(key) {
		if source.GetDeletionTimestamp() != nil && c.grants != nil {
			return recheckPeriod, nil // grants that are not read yet keep it, without an event later
		}
		return 0, nil
	}
	if !c.env.Scope.Central() && !c.env.Scope.Labelled && c.progress.shouldReport(source.GetUID(), "to be released") {
		return rand.N(spread), nil
	}
	if copied, err := c.copies(ctx, source); err != nil || !copied {
		return 0, err
	}
	c.progress.forget(source.GetUID())
	err = c.patchSource(ctx, source, cluster.RemoveFinalizers(source, finalizer))
	if err != nil && !errors.Is(err, cluster.ErrGone) {
		return 0, fmt.Errorf("remove the finalizer of %s, which is not copied any more: %w", key, err)
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
		return found && !c.hasSnapshot(content) || !found && c.env.Scope.Labelled
	}
	return false
}

// protected finds a source and the finalizer that keeps it; nil if it is gone.
func (c *Controller) protected(ctx context.Context, key string) (cluster.Object, string, error) {
	kind, name, _ := strings.Cut(key, "/")
	switch {
	case kind == "PersistentVolumeClaim":
		if pvc, found := c.claims.Get(name); found {
			return pvc, lifecycle.CloneFinalizer, nil
		}
	case kind == "VolumeSnapshot" && c.options.Snapshots:
		if snapshot, err := c.snapshotNamed(ctx, name); snapshot != nil || err != nil {
			return snapshot, lifecycle.RestoreFinalizer, err
		}
	}
	return nil, "", nil
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
		return driverOf(source) == "" || c.forDriver(source), nil
	case *snapshotv1.VolumeSnapshot:
		if source.Status == nil || source.Status.BoundVolumeSnapshotContentName == nil {
			return true, nil
		}
		name := *source.Status.BoundVolumeSnapshotContentName
		content, err := c.env.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the content of VolumeSnapshot %s: %w", cluster.KeyOf(source), err)
		}
		return content.Spec.Driver == c.env.Driver, nil
	}
	return false, nil
}

// inUse reports whether a source is being copied, or will be: for a claim that waits, or
// by an intent whose claim is gone.
func (c *Controller) inUse(key string) bool {
	for _, pvc := range c.claims.By(cluster.ClaimBySource(), key) {
		if c.pending(pvc) && pvc.DeletionTimestamp == nil && c.grants.MayUse(pvc) {
			return true
		}
	}
	for _, intent := range c.intents.All() {
		if intent.Source == key {
			return true
		}
	}
	return false
}

func (c *Controller) patchSource(ctx context.Context, source cluster.Object, ops []cluster.Op) (err error) {
	switch source := source.(type) {
	case *corev1.PersistentVolumeClaim:
		_, err = c.claims.Patch(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(source.Namespace), source, ops...)
	case *snapshotv1.VolumeSnapshot:
		_, err = c.patchSnapshot(ctx, source, ops)
	}
	return err
}
