package provision

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// granted returns an error if a claim may not be made of its source. With
// Options.CrossNamespace the claim waits for a ReferenceGrant.
func (c *Controller) granted(pvc *corev1.PersistentVolumeClaim, source claim.SourceRef) error {
	err := c.grants.Check(pvc, source)
	if err != nil && c.grants != nil {
		return waiting{err}
	}
	return err
}
