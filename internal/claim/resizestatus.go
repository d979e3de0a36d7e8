package claim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Annotations of expansion.
const (
	// PreResizeAnnotation on a PersistentVolume is the size of the claim before the
	// volume grew, until the filesystem has grown too.
	PreResizeAnnotation = "volume.alpha.kubernetes.io/pre-resize-capacity"
	// NodeExpansionNotRequiredAnnotation on a claim, "true", informs the kubelets
	// that a ReadWriteMany volume needs no expansion on further nodes.
	NodeExpansionNotRequiredAnnotation = "volume.kubernetes.io/node-expansion-not-required"
)

// BeginResize writes into a claim that its volume is about to be grown to
// target. A repeated attempt at the same size keeps its state and the
// conditions that say how the last one ended.
func BeginResize(pvc *corev1.PersistentVolumeClaim, target resource.Quantity, now time.Time) {
	allocated, worked := pvc.Status.AllocatedResources[corev1.ResourceStorage]
	state := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if !worked || allocated.Cmp(target) != 0 || state == "" {
		dropConditions(pvc, corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
			corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError)
		if pvc.Status.AllocatedResources == nil {
			pvc.Status.AllocatedResources = corev1.ResourceList{}
		}
		pvc.Status.AllocatedResources[corev1.ResourceStorage] = target
		setResizeState(pvc, corev1.PersistentVolumeClaimControllerResizeInProgress)
	}
	if Condition(pvc, corev1.PersistentVolumeClaimResizing) == nil {
		setCondition(pvc, corev1.PersistentVolumeClaimResizing, "", "", now)
	}
	delete(pvc.Annotations, NodeExpansionNotRequiredAnnotation)
}

// FailResize writes a failed attempt into a claim. Unless the size is infeasible, the
// state is "in progress" again: the driver may still expand the volume.
func FailResize(pvc *corev1.PersistentVolumeClaim, outcome Outcome, message string, now time.Time) {
	switch {
	case outcome == OutcomeInfeasible:
		setResizeState(pvc, corev1.PersistentVolumeClaimControllerResizeInfeasible)
	case pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimControllerResizeInfeasible:
		setResizeState(pvc, corev1.PersistentVolumeClaimControllerResizeInProgress)
	}
	if outcome != OutcomeUncertain {
		setCondition(pvc, corev1.PersistentVolumeClaimControllerResizeError, "", message, now)
	}
}

// AwaitNode writes into a claim that its volume has grown and that the kubelet must grow
// the filesystem.
func AwaitNode(pvc *corev1.PersistentVolumeClaim, now time.Time) {
	setResizeState(pvc, corev1.PersistentVolumeClaimNodeResizePending)
	dropConditions(pvc, corev1.PersistentVolumeClaimControllerResizeError)
	setCondition(pvc, corev1.PersistentVolumeClaimFileSystemResizePending, "",
		"The volume has grown. Its filesystem grows on the node when a pod uses the claim.", now)
	delete(pvc.Annotations, NodeExpansionNotRequiredAnnotation)
}

// FinishResize writes into a claim that its volume has grown and that nothing
// is left to do.
func FinishResize(pvc *corev1.PersistentVolumeClaim, size resource.Quantity) {
	if pvc.Status.Capacity == nil {
		pvc.Status.Capacity = corev1.ResourceList{}
	}
	pvc.Status.Capacity[corev1.ResourceStorage] = size
	delete(pvc.Status.AllocatedResourceStatuses, corev1.ResourceStorage)
	dropConditions(pvc, corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError)
	if pvc.Annotations == nil {
		pvc.Annotations = map[string]string{}
	}
	pvc.Annotations[NodeExpansionNotRequiredAnnotation] = "true"
}

func setResizeState(pvc *corev1.PersistentVolumeClaim, state corev1.ClaimResourceStatus) {
	if pvc.Status.AllocatedResourceStatuses == nil {
		pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{}
	}
	pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] = state
}
