package coordinate

import "github.com/holdfast-csi/holdfast/internal/claim"

// lostNodes counts the nodes with volumes that do not exist, lack the driver or are not ready.
func (c *Controller) lostNodes() (lost int) {
	for _, label := range c.volumes.Values(c.volumesByLabel()) {
		switch label {
		case wakeKey, claim.AnyNode, claim.UnknownNode:
			continue
		}
		object, found := c.nodes.labelled(label)
		if !found {
			lost++
			continue
		}
		if one, registered := c.nodes.get(object.Name); !registered || !one.ready {
			lost++
		}
	}
	return lost
}
