package claim

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition finds a condition of a claim that is true; nil when there is none.
func Condition(
	pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType,
) *corev1.PersistentVolumeClaimCondition {
	for i := range pvc.Status.Conditions {
		if c := &pvc.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// setCondition makes a condition true. The time is that of its last transition:
// a new text alone does not move it.
func setCondition(
	pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType, reason, message string, now time.Time,
) {
	if old := Condition(pvc, kind); old != nil {
		old.Reason, old.Message = reason, message
		return
	}
	dropConditions(pvc, kind) // one that is false
	pvc.Status.Conditions = append(pvc.Status.Conditions, corev1.PersistentVolumeClaimCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now),
	})
}

func dropConditions(pvc *corev1.PersistentVolumeClaim, kinds ...corev1.PersistentVolumeClaimConditionType) {
	pvc.Status.Conditions = slices.DeleteFunc(pvc.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return slices.Contains(kinds, c.Type)
	})
}
