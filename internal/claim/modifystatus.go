package claim

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// ModifySecret is the secret of ControllerModifyVolume: that of the
// annotations, else that of expansion; nil when there is neither.
func ModifySecret(volume *corev1.PersistentVolume) *corev1.SecretReference {
	name, namespace := volume.Annotations[ModifySecretNameAnnotation], volume.Annotations[ModifySecretNamespaceAnnotation]
	if name != "" && namespace != "" {
		return &corev1.SecretReference{Name: name, Namespace: namespace}
	}
	if volume.Spec.CSI == nil {
		return nil
	}
	return volume.Spec.CSI.ControllerExpandSecretRef
}

// MutableParameters returns a VolumeAttributesClass's parameters, with the names of claim and
// volume where the driver needs them.
func MutableParameters(
	class map[string]string, pvc *corev1.PersistentVolumeClaim, volume string, extraMetadata bool,
) map[string]string {
	parameters := maps.Clone(class)
	if !extraMetadata {
		return parameters
	}
	if parameters == nil {
		parameters = map[string]string{}
	}
	parameters[ReservedPrefix+"pvc/name"] = pvc.Name
	parameters[ReservedPrefix+"pvc/namespace"] = pvc.Namespace
	parameters[ReservedPrefix+"pv/name"] = volume
	return parameters
}

// PendModify writes into a claim's status that its class does not exist. The class that
// was tried before stays in the status.
func PendModify(pvc *corev1.PersistentVolumeClaim) {
	modifyStatus(pvc).Status = corev1.PersistentVolumeClaimModifyVolumePending
}

// BeginModify writes into a claim that its volume is about to get a class.
func BeginModify(pvc *corev1.PersistentVolumeClaim, class string, now time.Time) {
	status := modifyStatus(pvc)
	if status.TargetVolumeAttributesClassName != class {
		dropConditions(pvc, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
	}
	status.Status, status.TargetVolumeAttributesClassName = corev1.PersistentVolumeClaimModifyVolumeInProgress, class
	if Condition(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume) == nil {
		setCondition(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume, "",
			fmt.Sprintf("The volume is being modified to VolumeAttributesClass %q.", class), now)
	}
}

// FailModify writes into a claim how an attempt ended; code is the gRPC code's name.
func FailModify(pvc *corev1.PersistentVolumeClaim, outcome Outcome, code, message string, now time.Time) {
	status := modifyStatus(pvc)
	status.Status = corev1.PersistentVolumeClaimModifyVolumeInProgress
	progress := "The driver refused VolumeAttributesClass %q; the request is repeated, or choose another class."
	switch outcome {
	case OutcomeInfeasible:
		status.Status = corev1.PersistentVolumeClaimModifyVolumeInfeasible
	case OutcomeUncertain:
		progress = "The modification to VolumeAttributesClass %q may still be in progress; the driver is asked again."
	}
	setCondition(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume, "",
		fmt.Sprintf(progress, status.TargetVolumeAttributesClassName), now)
	setCondition(pvc, corev1.PersistentVolumeClaimVolumeModifyVolumeError, code, message, now)
}

// RejectModify writes into a claim that a class is not for its volume's driver,
// which was not called.
func RejectModify(pvc *corev1.PersistentVolumeClaim, class, text string, now time.Time) {
	BeginModify(pvc, class, now)
	FailModify(pvc, OutcomeInfeasible, "InvalidArgument", text, now)
}

// FinishModify writes into a claim that its volume has the class now.
func FinishModify(pvc *corev1.PersistentVolumeClaim, class string) {
	pvc.Status.CurrentVolumeAttributesClassName = &class
	pvc.Status.ModifyVolumeStatus = nil
	dropConditions(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
}

// CancelModify writes into a claim that the user withdrew the request.
func CancelModify(pvc *corev1.PersistentVolumeClaim) {
	dropConditions(pvc, corev1.PersistentVolumeClaimVolumeModifyingVolume)
}

func modifyStatus(pvc *corev1.PersistentVolumeClaim) *corev1.ModifyVolumeStatus {
	if pvc.Status.ModifyVolumeStatus == nil {
		pvc.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{}
	}
	return pvc.Status.ModifyVolumeStatus
}
