package claim

import corev1 "k8s.io/api/core/v1"

// Modify is the state on which the attributes of a claim's volume depend (KEP 3751).
// Names are those of VolumeAttributesClasses; an absent one is empty.
type Modify struct {
	// Desired is the class in the claim's spec, Current that of the volume.
	Desired, Current string
	// Target is the class of the last attempt, and Status its result, both in
	// status.modifyVolumeStatus. Status is empty without an attempt.
	Target string
	Status corev1.PersistentVolumeClaimModifyVolumeStatus
	// Modifying is the condition ModifyingVolume.
	Modifying bool
	// Final reports that the driver's last answer to this process was final, so that the
	// attempt has ended. It is false after a restart.
	Final bool
	// Slow reports that the driver rejected the target recently.
	Slow bool
}

// ModifyOf reads a claim.
func ModifyOf(pvc *corev1.PersistentVolumeClaim) Modify {
	m := Modify{Modifying: Condition(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume) != nil}
	if name := pvc.Spec.VolumeAttributesClassName; name != nil {
		m.Desired = *name
	}
	if name := pvc.Status.CurrentVolumeAttributesClassName; name != nil {
		m.Current = *name
	}
	if status := pvc.Status.ModifyVolumeStatus; status != nil {
		m.Target, m.Status = status.TargetVolumeAttributesClassName, status.Status
	}
	return m
}

// ModifyStep is the next step for a claim's attributes.
type ModifyStep int

const (
	// ModifyNothing: the volume has the desired attributes.
	ModifyNothing ModifyStep = iota
	// ModifyWait: the driver rejected the class; the request is retried later.
	ModifyWait
	// ModifyCancel: the user withdrew the request. The condition is removed; the
	// status of the last attempt stays.
	ModifyCancel
	// ModifyContinue: the request for the old target is repeated, for any desired class.
	ModifyContinue
	// ModifyStart: the desired class becomes the target.
	ModifyStart
)

func (s ModifyStep) String() string {
	return [...]string{"nothing", "wait", "cancel", "continue", "start"}[s]
}

// Step returns the next step. The request for a target that the driver may still apply
// is repeated until its answer is final.
func (m Modify) Step() ModifyStep {
	running := m.Status == corev1.PersistentVolumeClaimModifyVolumeInProgress && m.Target != ""
	switch {
	case m.Slow && m.Status != "" && m.Desired == m.Target:
		return ModifyWait
	case running && (m.Desired == "" || !m.Final):
		return ModifyContinue
	case m.Desired == "" && m.Modifying:
		return ModifyCancel
	case m.Desired == "":
		return ModifyNothing
	case m.Status == "" && m.Desired == m.Current:
		return ModifyNothing
	}
	return ModifyStart
}
