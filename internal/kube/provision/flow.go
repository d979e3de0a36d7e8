package provision

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
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
		flow := cluster.VolumeFlow(intent.Volume)
		flow.Call = createCall
		if c.notNeeded(pvc, intent) { // undoing an intent ends with DeleteVolume
			flow.Call = deleteCall
		}
		return flow
	}
	if pvc == nil {
		return work.Flow{}
	}
	flow := cluster.ClaimFlow(pvc)
	if pvc.Spec.VolumeName == "" {
		flow.Call = createCall
	}
	return flow
}

// volumeFlow is the flow of a PersistentVolume.
func volumeFlow(pv *corev1.PersistentVolume) work.Flow {
	flow := cluster.VolumeFlow(pv)
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
