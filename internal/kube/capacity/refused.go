package capacity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// A class whose parameters the driver rejects has no objects. The scheduler then
// schedules no pod with a volume of the class and reports too little storage.
// CreateVolume, whose error would name the reason, is never called. So this
// controller writes the event.

// reasonRefused is the reason of the event about a failed CreateVolume.
const reasonRefused = "ProvisioningFailed"

// recordRefusal records which classes the driver rejects and writes an event on
// each pending claim of such a class.
func (c *Controller) recordRefusal(q *question, err error) {
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
	onRefusal := c.onRefusal
	c.mu.Unlock()
	if !refused {
		return
	}
	for _, class := range q.classes {
		if onRefusal != nil {
			onRefusal(class)
		}
		for _, pvc := range c.claims.By(cluster.ClaimByClass(), class) {
			c.warnIfRefused(pvc)
		}
	}
}

// claimChanged writes the event on a new claim at once. The next GetCapacity for
// its class comes only after the queue's pause.
func (c *Controller) claimChanged(old, new *corev1.PersistentVolumeClaim) {
	if old == nil && new != nil {
		c.warnIfRefused(new)
	}
}

// OnRefusal sets what is called after the driver rejected a StorageClass; nil for nothing.
// It replaces an earlier call.
func (c *Controller) OnRefusal(call func(class string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRefusal = call
}

// Refused returns why the driver rejects a StorageClass.
func (c *Controller) Refused(class string) (why string, refused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	why, refused = c.refused[class]
	return why, refused
}

func (c *Controller) warnIfRefused(pvc *corev1.PersistentVolumeClaim) {
	if pvc.Spec.StorageClassName == nil || pvc.Spec.VolumeName != "" ||
		pvc.DeletionTimestamp != nil || claim.SelectedNode(pvc) != "" {
		return
	}
	class := *pvc.Spec.StorageClassName
	if why, refused := c.Refused(class); refused {
		c.env.Recorder.Event(pvc, corev1.EventTypeWarning, reasonRefused,
			fmt.Sprintf("no pod with a volume of StorageClass %q can be scheduled, since driver %s rejects the class: %.800s",
				class, c.env.Driver, why))
	}
}
