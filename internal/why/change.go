package why

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// resizing inspects a claim that requests more than its capacity.
func (w *walk) resizing(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, pod *corev1.Pod) {
	want, have := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	if want.Cmp(have) <= 0 || have.IsZero() {
		return
	}
	from := []string{evidence(claims, pvc.Namespace, pvc.Name, "status.allocatedResourceStatuses")}
	sizes := fmt.Sprintf("from %s to %s", have.String(), want.String())
	if list := w.warnings(claims, pvc, "VolumeResizeFailed", "FileSystemResizeFailed"); len(list) > 0 {
		w.add(failing, failure(fmt.Sprintf("the claim %s cannot grow %s", pvc.Name, sizes), claims, list))
	}
	if pod != nil {
		if list := w.warnings(pods, pod, "VolumeResizeFailed", "FileSystemResizeFailed"); len(list) > 0 {
			w.add(failing, failure(fmt.Sprintf("the filesystem of claim %s cannot grow %s", pvc.Name, sizes), pods, list))
		}
	}
	class := get[storagev1.StorageClass](w, classes, "", pv.Spec.StorageClassName)
	switch state := pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
	case state == corev1.PersistentVolumeClaimControllerResizeInfeasible, state == corev1.PersistentVolumeClaimNodeResizeInfeasible:
		w.add(cause, Finding{What: fmt.Sprintf("the driver reports that the claim %s cannot grow %s at all (%s)", pvc.Name,
			sizes, state), Evidence: from,
			Do: fmt.Sprintf("Ask for a smaller size, which may be anything above %s.", have.String())})
	case state == corev1.PersistentVolumeClaimNodeResizePending, hasCondition(pvc, corev1.PersistentVolumeClaimFileSystemResizePending):
		if len(w.users(pvc)) == 0 {
			w.add(waiting, Finding{What: fmt.Sprintf("the volume of claim %s has grown, and its filesystem grows when a pod uses it", pvc.Name), Since: since(pvc, corev1.PersistentVolumeClaimFileSystemResizePending), Evidence: from, Do: "Run a pod that uses the claim."})
			return
		}
		w.add(waiting, Finding{What: fmt.Sprintf("the volume of claim %s has grown, and the node has not expanded its filesystem yet", pvc.Name), Since: since(pvc, corev1.PersistentVolumeClaimFileSystemResizePending), Evidence: from,
			Do: "If this lasts for minutes, the driver may expand the filesystem only at the next mount: restart the pod."})
	case class != nil && (class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion) && state == "":
		w.add(cause, Finding{What: fmt.Sprintf("the claim %s asks to grow %s, and its class %s does not allow it", pvc.Name,
			sizes, class.Name), Evidence: []string{evidence(classes, "", class.Name, "allowVolumeExpansion")},
			Do: "Set allowVolumeExpansion: true in the class."})
	default:
		w.add(waiting, Finding{What: fmt.Sprintf("the claim %s waits for the driver to expand it %s", pvc.Name, sizes),
			Since: since(pvc, corev1.PersistentVolumeClaimResizing), Evidence: from,
			Do: "If this lasts for minutes, check that the driver's controller (its resizer) runs, and read its log."})
	}
}

func hasCondition(pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) bool {
	return !since(pvc, kind).IsZero() || slices.ContainsFunc(pvc.Status.Conditions,
		func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == kind && c.Status == corev1.ConditionTrue
		})
}

// modifying inspects a claim whose attributes class changes.
func (w *walk) modifying(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
	want, have := text(pvc.Spec.VolumeAttributesClassName), text(pvc.Status.CurrentVolumeAttributesClassName)
	if want == have || want == "" || pv.Spec.CSI == nil {
		return
	}
	if !w.attributesClass(pvc, want, pv.Spec.CSI.Driver) {
		return
	}
	from := []string{evidence(claims, pvc.Namespace, pvc.Name, "status.modifyVolumeStatus")}
	if list := w.warnings(claims, pvc, "VolumeModifyFailed"); len(list) > 0 {
		w.add(failing, failure(fmt.Sprintf("the attributes of claim %s cannot be changed to class %s", pvc.Name,
			want), claims, list))
	}
	switch status := pvc.Status.ModifyVolumeStatus; {
	case status == nil:
		w.add(waiting, Finding{What: fmt.Sprintf("the attributes of claim %s change to class %s, and the resizer has not begun", pvc.Name, want), Evidence: from, Do: "Check that the driver has the capability MODIFY_VOLUME ('holdfast csi info'), and that its resizer runs."})
	case status.Status == corev1.PersistentVolumeClaimModifyVolumeInfeasible:
		w.add(cause, Finding{What: fmt.Sprintf("the driver reports that the volume of claim %s cannot have the attributes of class %s", pvc.Name, status.TargetVolumeAttributesClassName), Evidence: from, Do: "Choose another class; the claim may be set back to the one it had."})
	default:
		w.add(waiting, Finding{What: fmt.Sprintf("the attributes of claim %s are being changed to class %s", pvc.Name,
			status.TargetVolumeAttributesClassName), Evidence: from, Do: "Wait; some drivers need hours."})
	}
}

// attributesClass reports whether a VolumeAttributesClass exists for the driver.
func (w *walk) attributesClass(pvc *corev1.PersistentVolumeClaim, name, driver string) bool {
	class := get[storagev1.VolumeAttributesClass](w, attributes, "", name)
	from := []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.volumeAttributesClassName")}
	switch {
	case class == nil:
		w.absent(attributes, Finding{What: fmt.Sprintf("the claim %s asks for the VolumeAttributesClass %s, which does not exist", pvc.Name, name), Evidence: from, Do: "Create it, or name another one in the claim."})
		return false
	case class.DriverName != driver:
		w.add(cause, Finding{What: fmt.Sprintf("the VolumeAttributesClass %s of claim %s is for driver %s, and the volume is of %s", name, pvc.Name, class.DriverName, driver), Evidence: from, Do: "Name a class for the volume's driver."})
		return false
	}
	return true
}

func text(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}
