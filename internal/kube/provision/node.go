package provision

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/bits"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// longestTurn is when the nodes have had their turns at a claim: with the usual
// pause, 2^30 of them.
const longestTurn = time.Minute

// turn is how long the node of a rank leaves a claim to those before it: one is
// first, then one, two, four and so on at once, so that among thousands of nodes
// a free one is soon found, and seldom do more try than had to.
func (c *Controller) turn(rank int) time.Duration {
	return time.Duration(bits.Len(uint(rank))) * c.options.TurnOfNode
}

// claimForNode selects this node for a claim with immediate binding. The nodes try in
// an order that differs for each claim and is the same on all nodes, so that they
// spread and rarely try at once. It returns nil if this node is not selected (yet).
func (c *Controller) claimForNode(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	if c.maySelectBySource(pvc) {
		return c.selectBySource(ctx, pvc)
	}
	if c.csiNodes == nil {
		return nil, 0, nil
	}
	known := c.progress.of(pvc.UID)
	pause := max(time.Until(known.asked.Add(c.turn(c.rank(pvc.UID)))), time.Until(known.skipUntil))
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
func (c *Controller) explainNotAllowed(pvc *corev1.PersistentVolumeClaim, known step, why error) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	if pause := time.Until(known.asked.Add(longestTurn)); pause > 0 || c.rank(pvc.UID) > 0 {
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

// room reports whether the driver has place for the claim on this node, as far as
// it can say.
func (c *Controller) room(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (bool, error) {
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
		why := fmt.Sprintf("node %q has room for %d bytes, and %s asks for %d; other nodes are tried", c.env.Scope.Node, free, claim.Describe(pvc), size)
		_, err = c.explainWait(pvc, why)
		return false, err
	}
	return true, nil
}

// selectNode writes this node into the claim, unless the claim has changed meanwhile.
func (c *Controller) selectNode(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, time.Duration, error) {
	name := cluster.Add(c.env.Scope.Node, "metadata", "annotations", selectedNodeAnnotation)
	patch := cluster.JSONPatch(cluster.TestVersion(pvc.ResourceVersion), name)
	written, err := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace).
		Patch(ctx, pvc.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case outdated(err):
		return nil, c.options.TurnOfNode, nil // another node may have been first
	case apierrors.IsNotFound(err):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("choose node %q for %s: %w", c.env.Scope.Node, claim.Describe(pvc), err)
	}
	c.claims.Wrote(written)
	return written, 0, nil
}

// reschedule takes the selected node out of a claim, if it still is that one:
// the scheduler then chooses again. A dropped intent is first removed from its
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
	written, err := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace).
		Patch(ctx, pvc.Name, types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), outdated(err):
		return nil // gone, or chosen again already
	case err != nil:
		return fmt.Errorf("%s: take node %q back: %w", claim.Describe(pvc), node, err)
	}
	c.claims.Wrote(written)
	return nil
}
