package provision

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// The calls of the driver whose hanging must not take the workers of others.
const (
	createCall = "CreateVolume"
	deleteCall = "DeleteVolume"
)

// claimFlow is the flow of a claim, by its UID.
func (c *Controller) claimFlow(key string) work.Flow {
	pvc := c.claim(types.UID(key))
	if intent, begun := c.intents.Get(key); begun {
		flow := work.Flow{
			Call: createCall, Class: intent.Volume.Spec.StorageClassName, Namespace: intent.Volume.Spec.ClaimRef.Namespace,
		}
		if c.notNeeded(pvc, intent) { // undoing an intent ends with DeleteVolume
			flow.Call = deleteCall
		}
		return flow
	}
	if pvc == nil {
		return work.Flow{}
	}
	flow := work.Flow{Class: className(pvc), Namespace: pvc.Namespace}
	if pvc.Spec.VolumeName == "" {
		flow.Call = createCall
	}
	return flow
}

// volumeFlow is the flow of a PersistentVolume, by its name.
func (c *Controller) volumeFlow(name string) work.Flow {
	pv, found := c.volumes.Get(name)
	if !found {
		return work.Flow{}
	}
	flow := work.Flow{Class: pv.Spec.StorageClassName}
	if pv.Spec.ClaimRef != nil {
		flow.Namespace = pv.Spec.ClaimRef.Namespace
	}
	if lifecycle.ReclaimDue(pv) == lifecycle.DueDelete {
		flow.Call = deleteCall
	}
	return flow
}

// sourceFlow is the flow of a source, which needs no call of the driver.
func sourceFlow(key string) work.Flow {
	_, name, _ := strings.Cut(key, "/")
	namespace, _, _ := strings.Cut(name, "/")
	return work.Flow{Namespace: namespace}
}
