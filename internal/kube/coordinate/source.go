package coordinate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

const (
	claimKind    = "PersistentVolumeClaim"
	snapshotKind = "VolumeSnapshot"
)

// selectBySource selects a node for a copy: one that has the source. The process of that
// node checks the source.
func (c *Controller) selectBySource(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (time.Duration, error) {
	source, err := claim.SourceOf(pvc)
	if errors.Is(err, claim.ErrPopulated) {
		return 0, nil
	}
	if err == nil {
		err = c.grants.Check(pvc, source)
	}
	if err != nil {
		c.events.warn(pvc, "%v", err)
		return recheckPeriod, nil
	}
	having, lacks := c.nodesOf(source)
	candidates, allowed := candidatesOf(class, having)
	switch {
	case lacks != "":
	case allowed == 0:
		lacks = fmt.Sprintf("is on no node that StorageClass %q allows", class.Name)
	case len(candidates) == 0 && len(having) == 1:
		lacks = fmt.Sprintf("is on node %q, which is not ready or accepts no pods", having[0].name)
	case len(candidates) == 0:
		lacks = fmt.Sprintf("is on %d nodes, none of which is ready and accepts pods", len(having))
	}
	if lacks != "" {
		c.events.warn(pvc, "%s: the source, %s, %s", claim.Describe(pvc), source, lacks)
		return recheckPeriod, nil
	}
	if len(candidates) > 1 {
		return c.selectWithRoom(ctx, pvc, class, candidates)
	}
	if pause := c.placements.skips(pvc.UID, candidates[0].name); pause > 0 {
		return min(pause, recheckPeriod), nil
	}
	node := candidates[0].name
	c.placements.put(pvc.UID, placement{node: node, key: cluster.KeyOf(pvc), bytes: size(pvc)})
	return c.writeNode(ctx, pvc, node)
}

// nodesOf returns the nodes on which a copy of a source can be created, or what the source
// lacks.
func (c *Controller) nodesOf(source claim.SourceRef) (found []node, lacks string) {
	if source.Kind == claim.SourceSnapshot {
		found, lacks = c.nodesOfSnapshot(source.Key())
	} else {
		found, lacks = c.nodesOfClaim(source.Key())
	}
	if lacks == "" && len(found) == 0 {
		lacks = "is on a node that does not run driver " + c.env.Driver
	}
	return found, lacks
}

// nodesOfClaim returns the nodes that have the volume of a claim, or what it lacks.
func (c *Controller) nodesOfClaim(key string) (found []node, lacks string) {
	source, exists := c.claims.Get(key)
	if !exists {
		return nil, "does not exist"
	}
	pv := c.volumeOf(source)
	switch {
	case pv == nil:
		return nil, "has no volume of driver " + c.env.Driver + " yet"
	case pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil:
		return c.nodes.all(), ""
	}
	return c.nodes.matching(pv.Spec.NodeAffinity), ""
}

// nodesOfSnapshot returns the nodes that have a snapshot: those of its topology, the one of
// its content's label, or those of the volume that it is of.
func (c *Controller) nodesOfSnapshot(key string) (found []node, lacks string) {
	snapshot, exists := c.snapshots.Get(key)
	if !exists {
		return nil, "does not exist"
	}
	content, exists := c.contents.store.Get(lifecycle.BoundContent(snapshot))
	if !exists {
		return nil, "is not bound to a VolumeSnapshotContent yet"
	}
	if content.Spec.Driver != c.env.Driver {
		return nil, "is of driver " + content.Spec.Driver
	}
	usable, err := claim.SnapshotTerms(content.Annotations)
	if err != nil {
		return nil, fmt.Sprintf("has VolumeSnapshotContent %q: %v", content.Name, err)
	}
	if usable != nil {
		return slices.DeleteFunc(slices.Clone(c.nodes.all()), func(one node) bool { return !claim.Restorable(usable, one.term) }), ""
	}
	if value := content.Labels[claim.ManagedByLabel]; value != claim.AnyNode {
		return c.labelled(value), ""
	}
	for _, handle := range c.contents.volumes(content) {
		for _, pv := range c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, handle)) {
			if pv.Spec.NodeAffinity != nil && pv.Spec.NodeAffinity.Required != nil {
				return c.nodes.matching(pv.Spec.NodeAffinity), ""
			}
		}
	}
	return nil, "is on a node that is not known yet"
}

// labelled returns the node that a value of a node label names.
func (c *Controller) labelled(value string) []node {
	if one, found := c.nodes.get(value); found {
		return []node{one}
	}
	return slices.DeleteFunc(slices.Clone(c.nodes.all()), func(one node) bool { return claim.NodeLabelValue(one.name) != value })
}

// syncSource removes the finalizer from a source that is being deleted and whose node does
// not exist. The process of an existing node removes it.
func (c *Controller) syncSource(ctx context.Context, key string) (time.Duration, error) {
	kind, name, _ := strings.Cut(key, "/")
	switch {
	case c.inUse(key):
		return recheckPeriod, nil // or until its claim ends; its grant may end, too
	case kind == claimKind:
		return c.releaseClaim(ctx, name)
	case kind == snapshotKind:
		return c.releaseSnapshot(ctx, name)
	}
	return 0, nil
}

// inUse reports whether a pending claim may be made of a source.
func (c *Controller) inUse(key string) bool {
	return slices.ContainsFunc(c.claims.By(cluster.ClaimBySource(), key), func(pvc *corev1.PersistentVolumeClaim) bool {
		return c.unbound(pvc) && c.grants.MayUse(pvc)
	})
}

func (c *Controller) releaseClaim(ctx context.Context, key string) (time.Duration, error) {
	source, found := c.claims.Get(key)
	if !found || source.DeletionTimestamp == nil {
		return 0, nil
	}
	pv, exists := c.volumes.Get(source.Spec.VolumeName)
	switch {
	case exists && !c.made(pv):
		return 0, nil
	case exists && c.nodes.anyExists(pv.Spec.NodeAffinity):
		return 0, nil // its process does it
	case !exists && claim.Provisioner(source) != c.env.Driver:
		return 0, nil
	}
	ops := cluster.RemoveFinalizers(source, lifecycle.CloneFinalizer)
	if ops == nil {
		return 0, nil
	}
	claimAPI := c.env.Core.CoreV1().PersistentVolumeClaims(source.Namespace)
	_, err := c.claims.Patch(ctx, claimAPI, source, ops...)
	return ended(err, "remove the finalizer of %s, which is not cloned any more", claim.Describe(source))
}

func (c *Controller) releaseSnapshot(ctx context.Context, key string) (time.Duration, error) {
	source, found := c.snapshots.Get(key)
	if !found || source.DeletionTimestamp == nil {
		return 0, nil
	}
	if kept, err := c.keptByContent(ctx, lifecycle.BoundContent(source)); kept || err != nil {
		return 0, err
	}
	ops := cluster.RemoveFinalizers(source, lifecycle.RestoreFinalizer)
	if ops == nil {
		return 0, nil
	}
	snapshotAPI := c.env.Snapshots.SnapshotV1().VolumeSnapshots(source.Namespace)
	_, err := c.snapshots.Patch(ctx, snapshotAPI, source, ops...)
	return ended(err, "remove the finalizer of VolumeSnapshot %q, which is not restored any more", key)
}

// keptByContent reports whether a node's process removes the finalizer of a snapshot. The
// content is read live: the cache of custom resources may not be filled yet.
func (c *Controller) keptByContent(ctx context.Context, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	contentAPI := c.env.Snapshots.SnapshotV1().VolumeSnapshotContents()
	content, err := contentAPI.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("read VolumeSnapshotContent %q: %w", name, err)
	}
	value := content.Labels[claim.ManagedByLabel]
	_, exists := c.nodes.labelled(value)
	return content.Spec.Driver != c.env.Driver || value == claim.AnyNode || exists, nil
}
