package cluster

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// FlowOf returns the flow of a key of a store (Env.Queue). An object that is gone has the
// zero Flow.
func FlowOf[T Object](store *Store[T], flow func(T) work.Flow) func(key string) work.Flow {
	return func(key string) work.Flow {
		object, found := store.Get(key)
		if !found {
			return work.Flow{}
		}
		return flow(object)
	}
}

// ClaimFlow is the flow of a claim that needs no call of the driver.
func ClaimFlow(pvc *corev1.PersistentVolumeClaim) work.Flow {
	return work.Flow{Class: claim.ClassName(pvc), Namespace: pvc.Namespace}
}

// VolumeFlow is the flow of a PersistentVolume that needs no call of the driver.
func VolumeFlow(pv *corev1.PersistentVolume) work.Flow {
	flow := work.Flow{Class: pv.Spec.StorageClassName}
	if pv.Spec.ClaimRef != nil {
		flow.Namespace = pv.Spec.ClaimRef.Namespace
	}
	return flow
}
