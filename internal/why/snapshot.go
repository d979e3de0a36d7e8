package why

import (
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func (w *walk) snapshotNamed(namespace, name string) {
	if !w.once("snapshot " + key(namespace, name)) {
		return
	}
	s := w.snapshot(namespace, name)
	if s == nil {
		w.absent(snapshots, Finding{What: fmt.Sprintf("VolumeSnapshot %s does not exist in namespace %s", name, namespace),
			Do: "Correct its name; if there are no snapshots at all, their custom resources may not be installed."})
		return
	}
	if s.DeletionTimestamp != nil {
		w.snapshotDeletion(s)
		return
	}
	if s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse {
		w.fine("the snapshot is ready to use")
		return
	}
	w.calls("VolumeSnapshot", namespace, name)
	if s.Status != nil && s.Status.Error != nil {
		w.add(failing, snapshotFailure("the snapshot "+name+" cannot be taken", s.Status.Error,
			evidence(snapshots, namespace, name, "status.error")))
	}
	if list := w.warnings(snapshots, s, "SnapshotCreationFailed", "SnapshotContentCreationFailed", "SnapshotFailed", "SnapshotContentMissing", "SnapshotContentMisbound"); len(list) > 0 && (s.Status == nil || s.Status.Error == nil) {
		w.add(failing, failure("the snapshot "+name+" cannot be taken", snapshots, list))
	}
	if w.snapshotSource(s) {
		w.content(s)
	}
	w.fine("the snapshot is not ready, and no cause is found")
}

func snapshotFailure(what string, failed *snapshotv1.VolumeSnapshotError, from string) Finding {
	f := Finding{What: what, Evidence: []string{from}}
	if failed.Message != nil {
		f.Error = *failed.Message
	}
	if failed.Time != nil {
		f.Since = failed.Time.Time
	}
	f.Call, f.Code = callOf("SnapshotCreationFailed", f.Error)
	return f
}

// snapshotSource reports whether the source of the snapshot and its class are usable.
func (w *walk) snapshotSource(s *snapshotv1.VolumeSnapshot) bool {
	from := []string{evidence(snapshots, s.Namespace, s.Name, "spec.source")}
	if name := text(s.Spec.Source.VolumeSnapshotContentName); name != "" {
		content := get[snapshotv1.VolumeSnapshotContent](w, contents, "", name)
		switch {
		case content == nil:
			w.absent(contents, Finding{What: fmt.Sprintf("the snapshot %s names the content %s, which does not exist", s.Name,
				name), Evidence: from, Do: "Create the VolumeSnapshotContent, or correct its name."})
			return false
		case content.Spec.VolumeSnapshotRef.Name != s.Name || content.Spec.VolumeSnapshotRef.Namespace != s.Namespace:
			w.add(cause, Finding{What: fmt.Sprintf("the content %s is for snapshot %s, not for %s", name,
				key(content.Spec.VolumeSnapshotRef.Namespace, content.Spec.VolumeSnapshotRef.Name), s.Name), Evidence: from,
				Do: "Set the content's volumeSnapshotRef to this snapshot."})
			return false
		}
		return true
	}
	pvc := w.claim(s.Namespace, text(s.Spec.Source.PersistentVolumeClaimName))
	switch {
	case pvc == nil:
		w.absent(claims, Finding{What: fmt.Sprintf("the snapshot %s is of claim %s, which does not exist", s.Name, text(s.Spec.Source.PersistentVolumeClaimName)), Evidence: from, Do: "Create the snapshot again with the name of a claim."})
		return false
	case pvc.Status.Phase != corev1.ClaimBound:
		w.add(following, Finding{What: fmt.Sprintf("the snapshot %s is of claim %s, which is not bound yet", s.Name,
			pvc.Name), Evidence: from, Do: "See what the claim waits for."})
		w.claimNamed(pvc.Namespace, pvc.Name, nil)
		return false
	}
	return w.snapshotClass(s, pvc)
}

func (w *walk) snapshotClass(s *snapshotv1.VolumeSnapshot, pvc *corev1.PersistentVolumeClaim) bool {
	pv := w.volume(pvc.Spec.VolumeName)
	if pv == nil || pv.Spec.CSI == nil {
		w.absent(volumes, Finding{What: fmt.Sprintf("the snapshot %s is of a volume that is not a CSI volume", s.Name), Evidence: []string{evidence(volumes, "", pvc.Spec.VolumeName, "spec")}, Do: "Only volumes of CSI drivers can be snapshotted."})
		return false
	}
	driver, name := pv.Spec.CSI.Driver, text(s.Spec.VolumeSnapshotClassName)
	from := []string{evidence(snapshots, s.Namespace, s.Name, "spec.volumeSnapshotClassName")}
	if name == "" {
		for _, class := range list[snapshotv1.VolumeSnapshotClass](w, snapshotKinds, "", "") {
			if class.Annotations[defaultSnapshotClass] == "true" && class.Driver == driver {
				return true
			}
		}
		w.absent(snapshotKinds, Finding{What: fmt.Sprintf("the snapshot %s names no class, and there is no default one for driver %s", s.Name, driver), Evidence: from,
			Do: "Mark a VolumeSnapshotClass of the driver as the default one (annotation " + defaultSnapshotClass +
				": \"true\"), or create the snapshot again with a class."})
		return false
	}
	class := get[snapshotv1.VolumeSnapshotClass](w, snapshotKinds, "", name)
	switch {
	case class == nil:
		w.absent(snapshotKinds, Finding{What: fmt.Sprintf("the snapshot %s asks for the class %s, which does not exist",
			s.Name, name), Evidence: from, Do: "Create the class, or create the snapshot again with one that exists."})
	case class.Driver != driver:
		w.add(cause, Finding{What: fmt.Sprintf("the class %s of snapshot %s is for driver %s, and the volume is of %s", name, s.Name, class.Driver, driver), Evidence: from, Do: "Create the snapshot again with a class of the volume's driver."})
	default:
		return true
	}
	return false
}

// content inspects the VolumeSnapshotContent of the snapshot.
func (w *walk) content(s *snapshotv1.VolumeSnapshot) {
	name := text(s.Spec.Source.VolumeSnapshotContentName)
	if s.Status != nil && text(s.Status.BoundVolumeSnapshotContentName) != "" {
		name = text(s.Status.BoundVolumeSnapshotContentName)
	}
	if name == "" {
		w.add(waiting, Finding{What: fmt.Sprintf("the snapshot controller has not begun to take the snapshot %s", s.Name), Since: s.CreationTimestamp.Time, Evidence: []string{evidence(snapshots, s.Namespace, s.Name, "status.boundVolumeSnapshotContentName")},
			Do: "Check that the snapshot controller runs."})
		return
	}
	content := get[snapshotv1.VolumeSnapshotContent](w, contents, "", name)
	if content == nil {
		w.absent(contents, Finding{What: fmt.Sprintf("the content %s of snapshot %s no longer exists", name, s.Name), Evidence: []string{evidence(snapshots, s.Namespace, s.Name, "status.boundVolumeSnapshotContentName")}, Do: "The cluster has lost the snapshot; delete it."})
		return
	}
	from := evidence(contents, "", name, "status")
	switch status := content.Status; {
	case status != nil && status.Error != nil:
		w.add(failing, snapshotFailure("the snapshot "+s.Name+" cannot be taken", status.Error, from))
	case status != nil && text(status.SnapshotHandle) != "":
		w.add(waiting, Finding{What: fmt.Sprintf("the snapshot %s is taken, and the driver has not finished it yet", s.Name), Since: takenAt(status), Evidence: []string{from}, Do: "Wait; some drivers upload large snapshots for hours."})
	case content.DeletionTimestamp != nil:
		// The host asks no driver for it any more.
		w.add(cause, Finding{
			What:  fmt.Sprintf("the content %s of snapshot %s is being deleted", name, s.Name),
			Since: content.DeletionTimestamp.Time, Evidence: []string{evidence(contents, "", name, "metadata.deletionTimestamp")},
			Do: "Delete the snapshot; the content ends with it.",
		})
	default:
		w.add(waiting, Finding{What: fmt.Sprintf("driver %s has not taken the snapshot %s yet", content.Spec.Driver, s.Name), Since: content.CreationTimestamp.Time, Evidence: []string{from}, Do: "If this lasts for minutes, check that the driver's snapshotter runs, and read its log."})
	}
}

func takenAt(status *snapshotv1.VolumeSnapshotContentStatus) time.Time {
	if status.CreationTime == nil {
		return time.Time{}
	}
	return time.Unix(0, *status.CreationTime)
}

func (w *walk) snapshotDeletion(s *snapshotv1.VolumeSnapshot) {
	w.calls("VolumeSnapshot", s.Namespace, s.Name)
	if list := w.warnings(snapshots, s, "SnapshotDeletePending"); len(list) > 0 {
		w.add(cause, failure("the snapshot "+s.Name+" is being deleted, and a claim is still being restored from it", snapshots, list))
	}
	name := ""
	if s.Status != nil {
		name = text(s.Status.BoundVolumeSnapshotContentName)
	}
	if content := get[snapshotv1.VolumeSnapshotContent](w, contents, "", name); name != "" && content != nil {
		if list := w.warnings(contents, content, "SnapshotDeleteError"); len(list) > 0 {
			w.add(failing, failure("the snapshot "+s.Name+" cannot be deleted", contents, list))
		}
		if content.DeletionTimestamp != nil {
			if node := w.lostManager(content.Labels[claim.ManagedByLabel]); node != "" {
				w.goneWith("the snapshot "+s.Name, node, content.Spec.Driver, true,
					evidence(contents, "", content.Name, "metadata.labels["+claim.ManagedByLabel+"]"))
			}
			w.finalizers(contents, content)
		}
	}
	w.finalizers(snapshots, s)
	w.fine("the snapshot is being deleted")
}

// since returns when a condition of a claim began.
func since(pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) (at time.Time) {
	for _, c := range pvc.Status.Conditions {
		if c.Type == kind && c.LastTransitionTime != (metav1.Time{}) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
