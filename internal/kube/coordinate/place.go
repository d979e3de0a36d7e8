package coordinate

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// syncClaim performs the next step for a claim: its label, its node, or the end of a
// selection that no node serves.
func (c *Controller) syncClaim(ctx context.Context, key string) (time.Duration, error) {
	if key == wakeKey {
		c.wake(c.waitingClaims(), wakeKey)
		return 0, nil
	}
	pvc, found := c.claims.Get(key)
	if !found || !c.concerns(pvc) {
		return 0, nil
	}
	if done, err := c.labelClaim(ctx, pvc); !done || err != nil {
		return 0, err
	}
	class, found := c.classes.Get(claim.ClassName(pvc))
	node := claim.SelectedNode(pvc)
	switch {
	case !c.pending(pvc):
		return c.unscheduled(pvc), nil
	case node != "":
		return c.checkSelected(ctx, pvc, !found || late(class), node)
	case !found:
		c.events.warn(pvc, "storageclass.storage.k8s.io %q not found", claim.ClassName(pvc))
		return recheckPeriod, nil
	case class.Provisioner != c.env.Driver:
		return 0, nil // of an in-tree plugin, or created again for another driver
	}
	return c.selectNode(ctx, pvc, class)
}

// unscheduled writes the event on a claim for which the scheduler finds no node, because
// the driver rejects the class and reports no capacity for it. A process without a driver
// does not know the reason.
func (c *Controller) unscheduled(pvc *corev1.PersistentVolumeClaim) time.Duration {
	if !c.unbound(pvc) || !c.ofClass(pvc) {
		return 0
	}
	class := claim.ClassName(pvc)
	if c.options.Refusals == nil {
		// The nodes report the room for a new class soon after its creation.
		if c.rooms.lacks(class) && time.Since(pvc.CreationTimestamp.Time) > recheckPeriod {
			c.events.warn(pvc, "no pod with a volume of StorageClass %q can be scheduled, since no node reports room for the class; "+
				"driver %s may reject its parameters", class, c.env.Driver)
		}
		return recheckPeriod
	}
	if why, refused := c.options.Refusals.Refused(class); refused {
		c.events.warn(pvc, "no pod with a volume of StorageClass %q can be scheduled, since driver %s rejects the class: %.800s",
			class, c.env.Driver, why)
	}
	return recheckPeriod
}

// refused queues the unbound claims of a class that the driver rejected. The driver is
// asked about a new class only after some time, and claims may come with the class.
func (c *Controller) refused(class string) {
	for _, pvc := range c.claims.By(cluster.ClaimByClass(), class) {
		if c.unbound(pvc) {
			c.claimQueue.Add(cluster.KeyOf(pvc))
		}
	}
}

func late(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// selectNode selects a node for a claim if the scheduler does not: for a copy the node of
// its source, else one with room.
func (c *Controller) selectNode(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass,
) (time.Duration, error) {
	if c.hasVolume(pvc) {
		return 0, nil // the controller-manager binds them
	}
	c.placements.deselected(pvc.UID)
	if len(cluster.ClaimBySource().Values(pvc)) > 0 {
		return c.selectBySource(ctx, pvc, class)
	}
	if late(class) || !c.options.Immediate {
		return 0, nil
	}
	candidates, allowed := candidatesOf(class, c.nodes.all())
	if len(candidates) == 0 {
		if allowed == 0 {
			c.events.warn(pvc, "no node that StorageClass %q allows runs driver %s", class.Name, c.env.Driver)
		} else {
			c.events.warn(pvc, "none of the nodes that run driver %s is ready and accepts pods", c.env.Driver)
		}
		return recheckPeriod, nil
	}
	return c.selectWithRoom(ctx, pvc, class, candidates)
}

// candidatesOf returns those of some nodes that may be selected, and how many the class
// allows.
func candidatesOf(class *storagev1.StorageClass, nodes []node) (open []node, allowed int) {
	for _, one := range nodes {
		if len(class.AllowedTopologies) > 0 && claim.CheckTopology(class, one.term.Map()) != nil {
			continue
		}
		allowed++
		if one.open() {
			open = append(open, one)
		}
	}
	return open, allowed
}

func (c *Controller) selectWithRoom(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, candidates []node,
) (time.Duration, error) {
	room := func(one node) (int64, bool) { return c.rooms.of(class.Name, one.term) }
	tie := func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name + "\x00" + string(pvc.UID)))
		return h.Sum64()
	}
	next := placement{key: cluster.KeyOf(pvc), bytes: size(pvc)}
	chosen, pause := c.placements.choose(pvc.UID, next, candidates, room, tie)
	if chosen == "" {
		c.events.warn(pvc, "none of the %d nodes that run driver %s has room for %d bytes", len(candidates), c.env.Driver, next.bytes)
		if pause == 0 {
			pause = recheckPeriod
		}
		return min(pause, recheckPeriod), nil
	}
	return c.writeNode(ctx, pvc, chosen)
}

// writeNode writes the node for which the claim is put into the claim, unless the claim has
// changed meanwhile.
func (c *Controller) writeNode(ctx context.Context, pvc *corev1.PersistentVolumeClaim, node string) (time.Duration, error) {
	ops := []cluster.Op{
		cluster.TestVersion(pvc.ResourceVersion), cluster.SetLabel(pvc, claim.NodeLabel, claim.NodeLabelValue(node)),
		cluster.Add(node, "metadata", "annotations", claim.SelectedNodeAnnotation),
	}
	if err := c.hit("select/before"); err != nil {
		c.placements.remove(pvc.UID)
		return 0, err
	}
	claimAPI := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	if _, err := c.claims.Patch(ctx, claimAPI, pvc, ops...); err != nil {
		c.placements.remove(pvc.UID)
		return ended(err, "select node %q for %s", node, claim.Describe(pvc))
	}
	c.placements.wrote(pvc.UID)
	return 0, c.hit("select/after")
}

// hasVolume reports whether a PersistentVolume exists for a claim.
func (c *Controller) hasVolume(pvc *corev1.PersistentVolumeClaim) bool {
	return len(c.volumes.By(volumesByClaim(), string(pvc.UID))) > 0
}

// checkSelected removes the selection of a node that does not exist, and of one that does
// not serve a claim with immediate binding: no pod needs the volume on that node.
func (c *Controller) checkSelected(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, late bool, name string,
) (time.Duration, error) {
	one, registered := c.nodes.get(name)
	if registered && one.ready || c.hasVolume(pvc) {
		c.placements.served(pvc.UID)
		return 0, nil
	}
	if !c.nodes.exists(name) {
		_, err := c.env.Core.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return c.removeNode(ctx, pvc, name, "does not exist")
		}
		if err != nil {
			return 0, fmt.Errorf("read Node %q, which is selected for %s: %w", name, claim.Describe(pvc), err)
		}
	}
	if late || !c.options.Immediate {
		return recheckPeriod, nil
	}
	if left := c.options.LostAfter - c.placements.lostFor(pvc.UID); left > 0 {
		return left, nil
	}
	return c.removeNode(ctx, pvc, name, fmt.Sprintf("is not ready or does not run driver %s", c.env.Driver))
}

// removeNode removes a node's selection from a claim. If the node's process has begun to
// create the volume, it deletes the volume when it runs again.
func (c *Controller) removeNode(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, node, why string,
) (time.Duration, error) {
	ops := []cluster.Op{cluster.TestVersion(pvc.ResourceVersion)}
	for _, key := range []string{claim.SelectedNodeAnnotation, claim.AlphaSelectedNodeAnnotation} {
		if pvc.Annotations[key] == node {
			ops = append(ops, cluster.Remove("metadata", "annotations", key))
		}
	}
	if err := c.hit("unselect"); err != nil {
		return 0, err
	}
	c.events.warn(pvc, "node %q, which is selected for the claim, %s; another one is selected", node, why)
	claimAPI := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	_, err := c.claims.Patch(ctx, claimAPI, pvc, ops...)
	return ended(err, "remove the selected node %q from %s", node, claim.Describe(pvc))
}
