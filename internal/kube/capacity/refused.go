package capacity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// A class whose parameters the driver refuses has no objects. The scheduler
// then places no pod that waits for a volume of it, and tells of too little
// storage; CreateVolume, which would tell the reason, is never called. So it is
// told here.

const (
	// reasonRefused is the reason that a failed CreateVolume would give.
	reasonRefused = "ProvisioningFailed"
	// selectedNode is on claims that the scheduler has found a place for.
	selectedNode = "volume.kubernetes.io/selected-node"
)

// note remembers which classes the driver refuses, and tells those who wait.
func (c *Controller) note(q *question, err error) {
	refused := lifecycle.Rejects(err)
	if err != nil && !refused {
		return
	}
	c.mu.Lock()
	for _, class := range q.classes {
		delete(c.refused, class)
		if refused {
			c.refused[class] = client.Message(err)
		}
	}
	c.mu.Unlock()
	if !refused {
		return
	}
	for _, class := range q.classes {
		for _, pvc := range c.claims.By(cluster.ClaimByClass(), class) {
			c.tellIfRefused(pvc)
		}
	}
}

// claimChanged tells at once those that come later. The queue asks the driver
// again about the class only after a pause.
func (c *Controller) claimChanged(old, new *corev1.PersistentVolumeClaim) {
	if old == nil && new != nil {
		c.tellIfRefused(new)
	}
}

func (c *Controller) tellIfRefused(pvc *corev1.PersistentVolumeClaim) {
	if pvc.Spec.StorageClassName == nil || pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil || pvc.Annotations[selectedNode] != "" {
		return
	}
	class := *pvc.Spec.StorageClassName
	c.mu.Lock()
	why, refused := c.refused[class]
	c.mu.Unlock()
	if refused {
		c.env.Recorder.Event(pvc, corev1.EventTypeWarning, reasonRefused,
			fmt.Sprintf("no pod with a volume of StorageClass %q can be scheduled, since driver %s refuses the class: %.800s", class, c.env.Driver, why))
	}
}
