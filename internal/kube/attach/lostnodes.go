package attach

import (
	"slices"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// showLostNodes exports the nodes that attachments name and that are lost.
func (c *Controller) showLostNodes() {
	byNode := cluster.AttachmentByNode()
	c.env.ShowLostNodes(func() (lost int) {
		for _, name := range c.attachments.Values(byNode) {
			if slices.ContainsFunc(c.attachments.By(byNode, name), c.owns) && c.lost(name) {
				lost++
			}
		}
		return lost
	})
}

// lost reports whether a node does not exist, lacks the driver or, as far as known, is not
// ready.
func (c *Controller) lost(name string) bool {
	csiNode, found := c.nodes.Get(name)
	if !found || !slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.env.Driver }) {
		return true
	}
	return c.options.Ready != nil && !c.options.Ready(name)
}
