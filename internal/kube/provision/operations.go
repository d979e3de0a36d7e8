package provision

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// The kinds of operations in the metrics.
const (
	provisionOperation = metrics.KindProvision
	deleteOperation    = metrics.KindDelete
)

// claimOperations returns the operation of a claim, by its UID: the creation of its volume,
// or the deletion of one that it does not need.
func (c *Controller) claimOperations(key string) []cluster.Operation {
	pvc := c.claim(types.UID(key))
	if intent, begun := c.intents.Get(key); begun {
		return []cluster.Operation{c.intentOperation(pvc, intent)}
	}
	if pvc == nil || !c.needsVolume(pvc) {
		return nil
	}
	class, found := c.classes.Get(className(pvc))
	if found && waitsForConsumer(class) && selectedNode(pvc) == "" {
		return nil // a pod must use it first
	}
	return []cluster.Operation{{Kind: provisionOperation, Since: c.askedAt(pvc)}}
}

// askedAt returns when the volume of a claim was asked for, as far as known: if a node was
// selected for it, that was later than its creation.
func (c *Controller) askedAt(pvc *corev1.PersistentVolumeClaim) time.Time {
	created := pvc.CreationTimestamp.Time
	if asked := c.progress.of(pvc.UID).asked; selectedNode(pvc) != "" && asked.After(created) {
		return asked
	}
	return created
}

func (c *Controller) intentOperation(pvc *corev1.PersistentVolumeClaim, intent volumeIntent) cluster.Operation {
	operation := cluster.Operation{Kind: provisionOperation, Since: intent.Since}
	if pvc != nil && c.askedAt(pvc).Before(intent.Since) {
		operation.Since = c.askedAt(pvc)
	}
	switch {
	case intent.Quarantine != "":
		operation.Reason = metrics.ReasonQuarantined
	case c.notNeeded(pvc, intent):
		operation.Kind = deleteOperation
	}
	return operation
}

// volumeOperations returns the deletion of a PersistentVolume's volume.
func (c *Controller) volumeOperations(pv *corev1.PersistentVolume) []cluster.Operation {
	if !c.made(pv) || c.due(pv) != lifecycle.DueDelete {
		return nil
	}
	return []cluster.Operation{{Kind: deleteOperation, Since: releasedAt(pv)}}
}

// releasedAt returns when a PersistentVolume was released or deleted; zero if unknown.
func releasedAt(pv *corev1.PersistentVolume) time.Time {
	switch at := pv.Status.LastPhaseTransitionTime; {
	case at != nil:
		return at.Time
	case pv.DeletionTimestamp != nil:
		return pv.DeletionTimestamp.Time
	}
	return time.Time{}
}
