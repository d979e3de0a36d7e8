package coordinate

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// volumesByLabel finds the driver's PersistentVolumes by the value of claim.NodeLabel, or by
// wakeKey without one.
func (c *Controller) volumesByLabel() cluster.Index[*corev1.PersistentVolume] {
	return cluster.Index[*corev1.PersistentVolume]{Name: "nodeLabel", Values: func(pv *corev1.PersistentVolume) []string {
		value, labelled := labelOf(pv)
		switch {
		case !c.made(pv):
			return nil
		case !labelled:
			return []string{wakeKey}
		}
		return []string{value}
	}}
}

// labelOf returns the value of claim.NodeLabel of a PersistentVolume. An admission policy may
// have labelled it before its node was found.
func labelOf(pv *corev1.PersistentVolume) (value string, labelled bool) {
	value, labelled = pv.Labels[claim.NodeLabel]
	return value, labelled && value != claim.UnknownNode
}

// made reports whether a PersistentVolume is of the driver.
func (c *Controller) made(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == c.env.Driver
}

// volumesByClaim finds PersistentVolumes by the UID of their claim.
func volumesByClaim() cluster.Index[*corev1.PersistentVolume] {
	return cluster.Index[*corev1.PersistentVolume]{Name: "claim", Values: func(pv *corev1.PersistentVolume) []string {
		if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID == "" {
			return nil
		}
		return []string{string(pv.Spec.ClaimRef.UID)}
	}}
}

// syncVolume labels a PersistentVolume of the driver with its node. The key wakeKey queues
// those without a label.
func (c *Controller) syncVolume(ctx context.Context, name string) (time.Duration, error) {
	if name == wakeKey {
		for _, pv := range c.volumes.By(c.volumesByLabel(), wakeKey) {
			c.volumeQueue.Add(pv.Name)
		}
		return 0, nil
	}
	pv, found := c.volumes.Get(name)
	if !found || !c.made(pv) {
		return 0, nil
	}
	value, known := c.labelOfVolume(pv)
	current, labelled := labelOf(pv)
	if !known || labelled && current == value {
		return 0, nil
	}
	if labelled && !c.twinOfAnotherNode(pv) {
		if left := c.nodes.restarting(current, pv.Spec.NodeAffinity, c.options.LostAfter); left > 0 {
			return left, nil
		}
	}
	if err := c.hit("label/volume"); err != nil {
		return 0, err
	}
	// A merge keeps the labels that other clients write at the same time.
	_, err := c.volumes.Merge(ctx, c.env.Core.CoreV1().PersistentVolumes(), pv, map[string]any{
		"metadata": map[string]any{"labels": map[string]string{claim.NodeLabel: value}},
	})
	return ended(err, "label PersistentVolume %q with its node", name)
}

// labelOfVolume returns the value of claim.NodeLabel for a PersistentVolume: the node
// whose labels its affinity matches, or AnyNode for one that several nodes can have. known
// is false if no node with the driver matches, such as for a node that was removed.
// A label that names one of several nodes stays as long as that node matches and no other
// object of the volume is labelled for another node, which would delete the volume without
// knowing this object. AnyNode stays in any case: other nodes' drivers may start later.
func (c *Controller) labelOfVolume(pv *corev1.PersistentVolume) (value string, known bool) {
	affinity := pv.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return claim.AnyNode, true
	}
	current, labelled := labelOf(pv)
	if labelled && current == claim.AnyNode {
		return current, true
	}
	matching := c.nodes.matching(affinity)
	switch {
	case len(matching) == 0:
		return "", false
	case len(matching) == 1:
		return claim.NodeLabelValue(matching[0].name), true
	case c.twinOfAnotherNode(pv):
		return claim.AnyNode, true
	}
	for _, node := range matching {
		if claim.NodeLabelValue(node.name) == current {
			return current, true
		}
	}
	return claim.AnyNode, true
}

// twinOfAnotherNode reports whether another PersistentVolume names the same volume and is
// labelled for another node.
func (c *Controller) twinOfAnotherNode(pv *corev1.PersistentVolume) bool {
	same := c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, pv.Spec.CSI.VolumeHandle))
	return slices.ContainsFunc(same, func(other *corev1.PersistentVolume) bool {
		value := other.Labels[claim.NodeLabel]
		return other.Name != pv.Name && value != claim.AnyNode && value != pv.Labels[claim.NodeLabel]
	})
}

// labelOfClaim returns the value of claim.NodeLabel for a claim: that of its volume, or,
// until it is bound, the selected node. known is false for a claim without both, and for one
// that is bound to a volume of another driver, which labels it.
func (c *Controller) labelOfClaim(pvc *corev1.PersistentVolumeClaim) (value string, known bool) {
	if pv := c.volumeOf(pvc); pv != nil {
		if value, labelled := labelOf(pv); labelled {
			return value, true
		}
		return c.labelOfVolume(pv)
	}
	node := claim.SelectedNode(pvc)
	return claim.NodeLabelValue(node), node != "" && pvc.Spec.VolumeName == "" && claim.Provisioner(pvc) == c.env.Driver
}

// labelClaim labels a claim with its node. done reports that it has the label.
func (c *Controller) labelClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (done bool, err error) {
	value, known := c.labelOfClaim(pvc)
	if current, labelled := pvc.Labels[claim.NodeLabel]; !known || labelled && current == value {
		return true, nil
	}
	if err := c.hit("label/claim"); err != nil {
		return false, err
	}
	claimAPI := c.env.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace)
	// A changed selection changes the label: the next event of the claim leads here again.
	_, err = c.claims.Patch(ctx, claimAPI, pvc, cluster.TestVersion(pvc.ResourceVersion), cluster.SetLabel(pvc, claim.NodeLabel, value))
	_, err = ended(err, "label %s with its node", claim.Describe(pvc))
	return false, err
}

// ended returns the result of a write. An object that is gone needs none; one that has
// changed meanwhile is processed again.
func ended(err error, format string, arguments ...any) (time.Duration, error) {
	switch {
	case err == nil, isGone(err):
		return 0, nil
	case isChanged(err):
		return changedPause, nil
	}
	return 0, fmt.Errorf(format+": %w", append(arguments, err)...)
}
