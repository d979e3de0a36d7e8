package provision

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// maximumDelay is the time after which every node has tried to select itself for a claim,
// for up to 2^30 nodes with the default delay.
const maximumDelay = time.Minute

// delay returns how long the node of a rank waits before it selects itself for a claim.
// One node is first, then one, two, four and so on at once, so that among thousands of
// nodes a free one is found soon, and few try at the same time.
func (c *Controller) delay(rank int) time.Duration {
	return time.Duration(bits.Len(uint(rank))) * c.options.BaseDelay
}

// claimForNode selects this node for a claim with immediate binding. The nodes try in
// an order that differs for each claim and is the same on all nodes, so that they
// spread and rarely try at once. It returns nil if this node is not selected (yet).
func (c *Controller) claimForNode(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	if c.maySelectBySource(pvc) {
		return c.selectBySource(ctx, pvc)
	}
	if c.csiNodes == nil {
		return nil, 0, nil
	}
	known := c.progress.of(pvc.UID)
	pause := max(time.Until(known.asked.Add(c.delay(c.rank(pvc.UID)))), time.Until(known.skipUntil))
	if pause > 0 {
		return nil, pause, nil
	}
	if err := claim.CheckTopology(class, c.env.Scope.Segments); err != nil {
		return c.explainNotAllowed(pvc, known, err)
	}
	room, err := c.room(ctx, pvc, class)
	if err != nil {
		return nil, 0, c.failed(pvc, class.Name, err)
	}
	if !room {
		c.progress.note(pvc.UID, func(s *step) { s.skipUntil = time.Now().Add(recheckPeriod) })
		return nil, recheckPeriod, nil
	}
	return c.selectNode(ctx, pvc)
}

// explainNotAllowed writes the event on a claim whose class does not allow this node.
// The node of the first rank does, after all other nodes had the time to select
// themselves.
func (c *Controller) explainNotAllowed(
	pvc *corev1.PersistentVolumeClaim, known step, why error,
) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	if pause := time.Until(known.asked.Add(maximumDelay)); pause > 0 || c.rank(pvc.UID) > 0 {
		return nil, max(pause, recheckPeriod), nil
	}
	after, err := c.explainWait(pvc, why.Error())
	return nil, after, err
}

// rank is how many nodes come before this one for a claim: the nodes are
// ordered by a hash of node and claim (rendezvous hashing).
func (c *Controller) rank(uid types.UID) int {
	own, before := weight(c.env.Scope.Node, uid), 0
	for _, node := range c.csiNodes.By(cluster.CSINodeByDriver(), c.env.Driver) {
		if w := weight(node.Name, uid); w > own || w == own && node.Name < c.env.Scope.Node {
			before++
		}
	}
	return before
}

func weight(node string, uid types.UID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node + "\x00" + string(uid)))
	// FNV leaves similar texts close together; the last step of MurmurHash3
	// spreads them.
	w := h.Sum64()
	w ^= w >> 33
	w *= 0xff51afd7ed558ccd
	w ^= w >> 33
	return w
}

// room reports whether the driver has enough capacity for the claim on this node. It
// returns true for a driver without GET_CAPACITY.
func (c *Controller) room(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (bool, error) {
	_, can, err := c.capabilities(ctx)
	if err != nil || !can.Capacity {
		return true, err
	}
	creation, err := c.creation(pvc, class, can)
	if err != nil {
		return false, err
	}
	request, err := creation.Request()
	if err != nil {
		return false, err
	}
	calling, cancel := c.env.Call(ctx)
	defer cancel()
	answer, err := c.env.CSI.GetCapacity(calling, &csi.GetCapacityRequest{
		VolumeCapabilities: request.GetVolumeCapabilities(), Parameters: creation.Class.Parameters,
		AccessibleTopology: &csi.Topology{Segments: c.env.Scope.Segments},
	})
	if err != nil {
		return false, err
	}
	free := answer.GetAvailableCapacity()
	if largest := answer.GetMaximumVolumeSize(); largest != nil {
		free = min(free, largest.GetValue())
	}
	if size := request.GetCapacityRange().GetRequiredBytes(); free < size {
		why := fmt.Sprintf("node %q has room for %d bytes, and %s requests %d; other nodes are tried",
			c.env.Scope.Node, free, claim.Describe(pvc), size)
		_, err = c.explainWait(pvc, why)
		return false, err
	}
	return true, nil
}

// selectNode writes this node into the claim, unless the claim has changed meanwhile.
func (c *Controller) selectNode(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	name := cluster.Add(c.env.Scope.Node, "metadata", "annotations", selectedNodeAnnotation)
	claims := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	written, err := c.claims.Patch(ctx, claims, pvc, cluster.TestVersion(pvc.ResourceVersion), name)
	switch {
	case errors.Is(err, cluster.ErrChanged):
		return nil, c.options.BaseDelay, nil // another node may have been first
	case errors.Is(err, cluster.ErrGone):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("select node %q for %s: %w", c.env.Scope.Node, claim.Describe(pvc), err)
	}
	return written, 0, nil
}

// reschedule removes the selected node from a claim, if it still is that one, so that
// the scheduler selects a node again. A dropped intent is first removed from its
// ConfigMap: a process that found it after a crash would complete it for the old
// node, while another node has the claim.
func (c *Controller) reschedule(ctx context.Context, pvc *corev1.PersistentVolumeClaim, node string) error {
	var ops []cluster.Op
	for _, key := range []string{selectedNodeAnnotation, alphaSelectedNode} {
		if node != "" && pvc.Annotations[key] == node {
			ops = append(ops, cluster.Test(node, "metadata", "annotations", key), cluster.Remove("metadata", "annotations", key))
		}
	}
	if ops == nil {
		return nil
	}
	if uid := string(pvc.UID); c.intents.Stored(uid) {
		if err := c.intents.RemoveNow(ctx, uid); err != nil {
			return err // the claim is tried on this node again
		}
	}
	_, err := c.claims.Patch(ctx, c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace), pvc, ops...)
	if err != nil && !errors.Is(err, cluster.ErrGone) && !errors.Is(err, cluster.ErrChanged) { // else a node is selected again
		return fmt.Errorf("%s: remove the selected node %q: %w", claim.Describe(pvc), node, err)
	}
	return nil
}
