package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// With node deployment, a copy can only be created on the node of its source, and the
// scheduler does not know sources. A selected node without the source removes itself
// from the claim. The node of the source then selects itself, and the scheduler places
// the pod there. A claim that no pod uses yet is not changed.

// errElsewhere says that another node has the source of a claim.
var errElsewhere = errors.New("is on another node")

func (c *Controller) elsewhere(pvc *corev1.PersistentVolumeClaim, source string) error {
	return fmt.Errorf("%s: the source, %s, %w than %q; the claim has to go there", claim.Describe(pvc), source, errElsewhere, c.env.Scope.Node)
}

// maySelectBySource reports whether a claim without a selected node waits for the node
// of its source. The controller-manager writes the provisioner into a claim when its
// volume is due: with WaitForFirstConsumer after a node was selected, so that a claim
// without one was released by that node.
func (c *Controller) maySelectBySource(pvc *corev1.PersistentVolumeClaim) bool {
	return !c.env.Scope.Central() && !c.env.Scope.Labelled && sourceOf(pvc) != ""
}

// selectBySource selects this node for a claim whose source is here. The node of the
// first rank reports what the source lacks.
func (c *Controller) selectBySource(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	if pause := time.Until(c.progress.of(pvc.UID).skipUntil); pause > 0 {
		return nil, pause, nil
	}
	local, err := c.sourceHere(ctx, pvc)
	var wait waiting
	switch {
	case errors.As(err, &wait):
		after, err := c.explainWait(pvc, err.Error())
		return nil, after, err
	case err != nil:
		return nil, 0, err
	case !local:
		return nil, recheckPeriod, nil
	}
	return c.selectNode(ctx, pvc)
}

// sourceHere reports whether this node has what the claim is made of; nothing is
// changed. Errors are those of a source that cannot be used (yet).
func (c *Controller) sourceHere(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (bool, error) {
	source, err := claim.SourceOf(pvc)
	if err != nil {
		return false, nil //nolint:nilerr // a populator's, or one that the chosen node refuses in words
	}
	if err := c.granted(pvc, source); err != nil {
		return false, err
	}
	switch source.Kind {
	case claim.SourceClaim:
		_, volume, err := c.cloned(ctx, pvc, source)
		return err == nil && c.env.Scope.OwnsVolume(volume), err
	case claim.SourceSnapshot:
		if c.snapshots == nil {
			return false, nil
		}
		return c.snapshotHere(ctx, pvc, source)
	}
	return false, nil
}

// snapshotHere is for a claim without a node: every node asks whether it has the
// snapshot, each of its cache. Only the one that seems to have it reads it live.
func (c *Controller) snapshotHere(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef,
) (bool, error) {
	snapshot, found := c.snapshots.Get(from.Key())
	if found && snapshot.Status != nil && snapshot.Status.BoundVolumeSnapshotContentName != nil {
		cached, known := c.contents.Get(*snapshot.Status.BoundVolumeSnapshotContentName)
		if !known || !c.hasSnapshot(cached) {
			return false, nil // its coming wakes the claim
		}
	}
	_, content, err := c.restored(ctx, pvc, from)
	return err == nil && c.hasSnapshot(content), err
}

// hasSnapshot reports whether a snapshot is this process's to restore, as far as
// anything says where it is: its topology, its label, or else the volume that it is of.
func (c *Controller) hasSnapshot(content *snapshotv1.VolumeSnapshotContent) bool {
	if c.env.Scope.Central() {
		return true
	}
	if usable, err := claim.SnapshotTerms(content.Annotations); err == nil && usable != nil {
		return claim.Restorable(usable, claim.NewTerm(c.env.Scope.Segments))
	}
	if node := content.Labels[claim.ManagedByLabel]; node != claim.AnyNode {
		return node == claim.NodeLabelValue(c.env.Scope.Node)
	}
	if content.Spec.Source.VolumeHandle == nil {
		return true
	}
	found := c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, *content.Spec.Source.VolumeHandle))
	return len(found) == 0 || c.env.Scope.OwnsVolume(found[0])
}

// restrict restricts a volume's topology to where its snapshot can be restored. If none
// remains, another node has to be selected, or the class does not fit.
func restrict(
	pvc *corev1.PersistentVolumeClaim, source claim.SourceRef, requirement *csi.TopologyRequirement,
	usable []claim.Term, plugin client.PluginCapabilities,
) (*csi.TopologyRequirement, error) {
	if !plugin.Topology {
		return requirement, nil
	}
	narrowed := claim.Restrict(requirement, usable)
	switch {
	case narrowed != nil || len(usable) == 0:
		return narrowed, nil
	case selectedNode(pvc) != "":
		return nil, fmt.Errorf("%s: the source, %s, %w than %q: it can be restored in %v only",
			claim.Describe(pvc), source, errElsewhere, selectedNode(pvc), usable)
	}
	return nil, waitFor("%s: the source, %s, can be restored in %v only, which allowedTopologies of the class exclude",
		claim.Describe(pvc), source, usable)
}

// rescheduleElsewhere removes this node from a claim whose source is on another node. If
// this node is selected again soon, the other node is not served, and the claim waits.
func (c *Controller) rescheduleElsewhere(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, err error,
) (time.Duration, error) {
	if pause := time.Until(c.progress.of(pvc.UID).skipUntil); pause > 0 {
		return min(pause, recheckPeriod), nil
	}
	_ = c.failed(pvc, class.Name, err)
	c.progress.note(pvc.UID, func(s *step) { s.skipUntil = time.Now().Add(recheckPeriod) })
	return 0, c.reschedule(ctx, pvc, selectedNode(pvc))
}
