package resize

import (
	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// The calls of the driver whose hanging must not take the workers of others.
const (
	expandCall = "ControllerExpandVolume"
	modifyCall = "ControllerModifyVolume"
)

// flow is the flow of a claim. One worker expands and modifies its volume: if both are
// due, a driver that hangs in ControllerModifyVolume delays this claim alone.
func (c *Controller) flow(key string) work.Flow {
	pvc, found := c.claims.Get(key)
	if !found {
		return work.Flow{}
	}
	flow := work.Flow{Namespace: pvc.Namespace}
	if pvc.Spec.StorageClassName != nil {
		flow.Class = *pvc.Spec.StorageClassName
	}
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
