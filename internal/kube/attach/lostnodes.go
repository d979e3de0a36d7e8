package attach

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// showLostNodes exports the nodes that attachments name and that are lost.
func (c *Controller) showLostNodes() {
	var objects *cluster.Store[*corev1.Node] // nil if they are not cached
	if c.options.Nodes {
		objects = c.env.Set.Nodes()
	}
	byNode := cluster.AttachmentByNode()
	c.env.ShowLostNodes(func() (lost int) {
		for _, name := range c.attachments.Values(byNode) {
			if slices.ContainsFunc(c.attachments.By(byNode, name), c.owns) && c.lost(objects, name) {
				lost++
			}
		}
		return lost
	})
}

// lost reports whether a node does not exist, lacks the driver or, if Node objects are
// cached, is not ready.
func (c *Controller) lost(objects *cluster.Store[*corev1.Node], name string) bool {
	csiNode, found := c.nodes.Get(name)
	if !found || !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.env.Driver }) {
		return true
	}
	if objects == nil {
		return false
	}
	object, found := objects.Get(name)
	return !found || !cluster.Ready(object)
}
