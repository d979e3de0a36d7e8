package resize

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// The calls of the driver whose hanging must not take the workers of others.
const (
	expandCall = "ControllerExpandVolume"
	modifyCall = "ControllerModifyVolume"
)

// flow is the flow of a claim. One worker expands and modifies its volume: if both are
// due, a driver that hangs in ControllerModifyVolume delays this claim alone.
func (c *Controller) flow(pvc *corev1.PersistentVolumeClaim) work.Flow {
	flow := cluster.ClaimFlow(pvc)
	view := claim.ModifyOf(pvc)
	volume, found := c.volumes.Get(pvc.Spec.VolumeName)
	switch {
	case view.Desired != view.Current || view.Modifying:
		flow.Call = modifyCall
	case found && claim.ResizeOf(pvc, volume).Asked():
		flow.Call = expandCall
	}
	return flow
}
