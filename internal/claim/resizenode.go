package claim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// NodeResizeDue reports whether the filesystem of a claim has to grow where the
// volume is mounted.
func NodeResizeDue(pvc *corev1.PersistentVolumeClaim) bool {
	switch pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage] {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	}
	return false
}

// BeginNodeResize writes into a claim that its filesystem is about to grow.
func BeginNodeResize(pvc *corev1.PersistentVolumeClaim) {
	setResizeState(pvc, corev1.PersistentVolumeClaimNodeResizeInProgress)
}

// FailNodeResize writes into a claim how an attempt on the node ended. One whose
// outcome is uncertain stays in progress. A size that is refused because the
// volume is in use waits for another time; the text says so.
func FailNodeResize(pvc *corev1.PersistentVolumeClaim, outcome Outcome, message string, now time.Time) {
	switch outcome {
	case OutcomeUncertain:
		return
	case OutcomeInfeasible:
		setResizeState(pvc, corev1.PersistentVolumeClaimNodeResizeInfeasible)
	default:
		setResizeState(pvc, corev1.PersistentVolumeClaimNodeResizePending)
	}
	setCondition(pvc, corev1.PersistentVolumeClaimNodeResizeError, "", message, now)
}
