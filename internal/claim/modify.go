package claim

import corev1 "k8s.io/api/core/v1"

// Modify is what decides about the attributes of a claim's volume (KEP 3751).
// Names are those of VolumeAttributesClasses; an absent one is empty.
type Modify struct {
	// Desired is what the user asks for, Current what the volume has.
	Desired, Current string
	// Target is what was tried last, and Status how that went;
	// status.modifyVolumeStatus. Status is empty when there is none.
	Target string
	Status corev1.PersistentVolumeClaimModifyVolumeStatus
	// Modifying is the condition ModifyingVolume.
	Modifying bool
	// Settled: the driver's last answer in this process said that nothing of
	// the attempt runs on. It is unknown after a restart.
	Settled bool
	// Slow: the driver refused the target not long ago.
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

// ModifyStep is what to do about a claim's attributes.
type ModifyStep int

const (
	// ModifyNothing: the volume has the desired attributes.
	ModifyNothing ModifyStep = iota
	// ModifyWait: the driver refused it, and is asked again later.
	ModifyWait
	// ModifyCancel: the user withdrew the request; the record of the last
	// attempt stays, the condition goes.
	ModifyCancel
	// ModifyContinue: the old target is called for again, for any desired class.
	ModifyContinue
	// ModifyStart: the desired class becomes the target.
	ModifyStart
)

func (s ModifyStep) String() string {
	return [...]string{"nothing", "wait", "cancel", "continue", "start"}[s]
}

// Step decides. A target that the driver may still be working on is gone on
// with until there is a final answer.
func (m Modify) Step() ModifyStep {
	running := m.Status == corev1.PersistentVolumeClaimModifyVolumeInProgress && m.Target != ""
	switch {
	case m.Slow && m.Status != "" && m.Desired == m.Target:
		return ModifyWait
	case running && (m.Desired == "" || !m.Settled):
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
