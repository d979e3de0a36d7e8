package why

import (
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const defaultSnapshotClass = "snapshot.storage.kubernetes.io/is-default-class"

func (w *walk) snapshotNamed(namespace, name string) {
	if !w.once("snapshot " + key(namespace, name)) {
		return
	}
	s := w.snapshot(namespace, name)
	if s == nil {
		w.absent(snapshots, Finding{What: fmt.Sprintf("there is no VolumeSnapshot %s in namespace %s", name, namespace), Do: "Correct its name; if there are no snapshots at all, their custom resources may not be installed."})
		return
	}
	if s.DeletionTimestamp != nil {
		w.snapshotGoes(s)
		return
	}
	if s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse {
		w.fine("the snapshot is ready to use")
		return
	}
	w.calls("VolumeSnapshot", namespace, name)
	if s.Status != nil && s.Status.Error != nil {
		w.add(failing, snapshotFailure("the snapshot "+name+" cannot be taken", s.Status.Error, evidence(snapshots, namespace, name, "status.error")))
	}
	if list := w.warnings(snapshots, s, "SnapshotCreationFailed", "SnapshotContentCreationFailed", "SnapshotFailed", "SnapshotContentMissing", "SnapshotContentMisbound"); len(list) > 0 && (s.Status == nil || s.Status.Error == nil) {
		w.add(failing, failure("the snapshot "+name+" cannot be taken", snapshots, list))
	}
	if w.snapshotSource(s) {
		w.content(s)
	}
	w.fine("the snapshot is not ready, and nothing is found that is in its way")
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

// snapshotSource is false when the snapshot has nothing that it could be taken from.
func (w *walk) snapshotSource(s *snapshotv1.VolumeSnapshot) bool {
	from := []string{evidence(snapshots, s.Namespace, s.Name, "spec.source")}
	if name := text(s.Spec.Source.VolumeSnapshotContentName); name != "" {
		content := get[snapshotv1.VolumeSnapshotContent](w, contents, "", name)
		switch {
		case content == nil:
			w.absent(contents, Finding{What: fmt.Sprintf("the snapshot %s is to be bound to content %s, which does not exist", s.Name, name), Evidence: from, Do: "Make the VolumeSnapshotContent, or correct its name."})
			return false
		case content.Spec.VolumeSnapshotRef.Name != s.Name || content.Spec.VolumeSnapshotRef.Namespace != s.Namespace:
			w.add(cause, Finding{What: fmt.Sprintf("the content %s is for snapshot %s, not for %s", name, key(content.Spec.VolumeSnapshotRef.Namespace, content.Spec.VolumeSnapshotRef.Name), s.Name), Evidence: from,
				Do: "Set the content's volumeSnapshotRef to this snapshot."})
			return false
		}
		return true
	}
	pvc := w.claim(s.Namespace, text(s.Spec.Source.PersistentVolumeClaimName))
	switch {
	case pvc == nil:
		w.absent(claims, Finding{What: fmt.Sprintf("the snapshot %s is of claim %s, which does not exist", s.Name, text(s.Spec.Source.PersistentVolumeClaimName)), Evidence: from, Do: "Make the snapshot again with the name of a claim."})
		return false
	case pvc.Status.Phase != corev1.ClaimBound:
		w.add(following, Finding{What: fmt.Sprintf("the snapshot %s is of claim %s, which is not bound yet", s.Name, pvc.Name), Evidence: from, Do: "See what the claim waits for."})
		w.claimNamed(pvc.Namespace, pvc.Name, nil)
		return false
	}
	return w.snapshotClass(s, pvc)
}

func (w *walk) snapshotClass(s *snapshotv1.VolumeSnapshot, pvc *corev1.PersistentVolumeClaim) bool {
	pv := w.volume(pvc.Spec.VolumeName)
	if pv == nil || pv.Spec.CSI == nil {
		w.absent(volumes, Finding{What: fmt.Sprintf("the snapshot %s is of a volume that is no CSI volume", s.Name), Evidence: []string{evidence(volumes, "", pvc.Spec.VolumeName, "spec")}, Do: "Only volumes of CSI drivers can be snapshotted."})
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
			Do: "Mark a VolumeSnapshotClass of the driver as the default one (annotation " + defaultSnapshotClass + ": \"true\"), or make the snapshot again with a class."})
		return false
	}
	class := get[snapshotv1.VolumeSnapshotClass](w, snapshotKinds, "", name)
	switch {
	case class == nil:
		w.absent(snapshotKinds, Finding{What: fmt.Sprintf("the snapshot %s asks for the class %s, which does not exist", s.Name, name), Evidence: from, Do: "Make the class, or make the snapshot again with one that exists."})
	case class.Driver != driver:
		w.add(cause, Finding{What: fmt.Sprintf("the class %s of snapshot %s is for driver %s, and the volume is of %s", name, s.Name, class.Driver, driver), Evidence: from, Do: "Make the snapshot again with a class of the volume's driver."})
	default:
		return true
	}
	return false
}

// content looks at the snapshot's other half.
func (w *walk) content(s *snapshotv1.VolumeSnapshot) {
	name := text(s.Spec.Source.VolumeSnapshotContentName)
	if s.Status != nil && text(s.Status.BoundVolumeSnapshotContentName) != "" {
		name = text(s.Status.BoundVolumeSnapshotContentName)
	}
	if name == "" {
		w.add(waiting, Finding{What: fmt.Sprintf("nobody has begun to take the snapshot %s", s.Name), Since: s.CreationTimestamp.Time, Evidence: []string{evidence(snapshots, s.Namespace, s.Name, "status.boundVolumeSnapshotContentName")},
			Do: "Is the snapshot controller running?"})
		return
	}
	content := get[snapshotv1.VolumeSnapshotContent](w, contents, "", name)
	if content == nil {
		w.absent(contents, Finding{What: fmt.Sprintf("the content %s of snapshot %s does not exist any more", name, s.Name), Evidence: []string{evidence(snapshots, s.Namespace, s.Name, "status.boundVolumeSnapshotContentName")}, Do: "The snapshot is lost to the cluster; delete it."})
		return
	}
	from := evidence(contents, "", name, "status")
	switch status := content.Status; {
	case status != nil && status.Error != nil:
		w.add(failing, snapshotFailure("the snapshot "+s.Name+" cannot be taken", status.Error, from))
	case status != nil && text(status.SnapshotHandle) != "":
		w.add(waiting, Finding{What: fmt.Sprintf("the snapshot %s is cut, and the driver still works on it", s.Name), Since: cutAt(status), Evidence: []string{from}, Do: "Wait; large snapshots are uploaded for hours by some drivers."})
	default:
		w.add(waiting, Finding{What: fmt.Sprintf("driver %s is to take the snapshot %s and has not done so yet", content.Spec.Driver, s.Name), Since: content.CreationTimestamp.Time, Evidence: []string{from}, Do: "If this stays for minutes, see whether the driver's snapshotter runs, and its log."})
	}
}

func cutAt(status *snapshotv1.VolumeSnapshotContentStatus) time.Time {
	if status.CreationTime == nil {
		return time.Time{}
	}
	return time.Unix(0, *status.CreationTime)
}

func (w *walk) snapshotGoes(s *snapshotv1.VolumeSnapshot) {
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
			w.held(contents, content)
		}
	}
	w.held(snapshots, s)
	w.fine("the snapshot is being deleted")
}

// since is when a condition of a claim began.
func since(pvc *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) (at time.Time) {
	for _, c := range pvc.Status.Conditions {
		if c.Type == kind && c.LastTransitionTime != (metav1.Time{}) {
			at = c.LastTransitionTime.Time
		}
	}
	return at
}
