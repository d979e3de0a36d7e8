package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// attachGracePeriod is how long an attachment without an error is not reported.
const attachGracePeriod = 30 * time.Second

func (w *walk) volumeNamed(name string) {
	pv := w.volume(name)
	if pv == nil {
		w.absent(volumes, Finding{What: "PersistentVolume " + name + " does not exist",
			Do: "Find its name with 'get pv'; a volume can also be named by its handle: volume/HANDLE."})
		return
	}
	if ref := pv.Spec.ClaimRef; ref != nil && pv.DeletionTimestamp == nil && pv.Status.Phase == corev1.VolumeBound {
		w.claimNamed(ref.Namespace, ref.Name, nil)
	}
	w.inspectVolume(pv, nil)
}

// handle finds a volume by the driver's ID.
func (w *walk) handle(id string) {
	found := false
	for _, pv := range list[corev1.PersistentVolume](w, volumes, "", "") {
		if pv.Name == id || (pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == id) {
			found = true
			w.volumeNamed(pv.Name)
		}
	}
	if found {
		return
	}
	for _, pod := range list[corev1.Pod](w, pods, "", "") {
		for _, v := range pod.Spec.Volumes {
			if v.CSI != nil && claim.InlineHandle(pod.UID, v.Name) == id {
				w.podNamed(pod.Namespace, pod.Name)
				w.fine("it is the inline volume %s of pod %s, which waits for nothing", v.Name, key(pod.Namespace, pod.Name))
				return
			}
		}
	}
	if !w.unreadable[pods] {
		w.absent(volumes, Finding{What: "no PersistentVolume and no pod has a volume with the handle " + id,
			Do: "No object may name the volume any more: ask the driver with 'holdfast csi ListVolumes'."})
	}
}

// bound inspects a bound claim and its volume.
func (w *walk) bound(pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	pv := w.volume(pvc.Spec.VolumeName)
	if pv == nil {
		w.absent(volumes, Finding{What: fmt.Sprintf("the claim %s is bound to volume %s, which does not exist", pvc.Name,
			pvc.Spec.VolumeName), Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.volumeName")},
			Do: "Restore the PersistentVolume (its handle is in the storage system), or restore the data into a new claim."})
		return
	}
	w.fine("the claim is bound to volume %s", pv.Name)
	w.calls("PersistentVolumeClaim", pvc.Namespace, pvc.Name)
	w.resizing(pvc, pv, pod)
	w.modifying(pvc, pv)
	if pod == nil {
		users := w.users(pvc)
		for i := range users {
			if !running(&users[i]) && users[i].DeletionTimestamp == nil {
				w.inspectVolume(pv, &users[i])
				w.mounting(&users[i])
			}
		}
		if !w.seen["volume "+pv.Name] {
			w.inspectVolume(pv, nil)
		}
	} else {
		w.exclusive(pvc, pod)
		w.inspectVolume(pv, pod)
	}
}

// exclusive reports the other pods that use a ReadWriteOncePod volume.
func (w *walk) exclusive(pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	if !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteOncePod) {
		return
	}
	for _, other := range w.users(pvc) {
		if other.UID != pod.UID || other.Name != pod.Name {
			w.add(cause, Finding{What: fmt.Sprintf("the claim %s is for one pod at a time (ReadWriteOncePod), and pod %s uses it", pvc.Name, other.Name), Since: other.CreationTimestamp.Time,
				Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name,
					"spec.accessModes")}, Do: "Wait until the other pod ends, or delete it."})
		}
	}
}

// inspectVolume inspects a volume. pod is the pod that needs it, or nil.
func (w *walk) inspectVolume(pv *corev1.PersistentVolume, pod *corev1.Pod) {
	w.once("volume " + pv.Name)
	w.calls("PersistentVolume", "", pv.Name)
	if pv.DeletionTimestamp != nil || pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed {
		w.volumeDeletion(pv)
	}
	pv = asServed(pv)
	csi := pv.Spec.CSI
	if csi == nil {
		w.fine("the volume is %s", strings.ToLower(string(pv.Status.Phase)))
		return
	}
	for _, ref := range []*corev1.SecretReference{csi.ControllerPublishSecretRef, csi.NodeStageSecretRef, csi.NodePublishSecretRef} {
		if ref != nil && pod != nil {
			w.secret("volume "+pv.Name, ref.Namespace, ref.Name, evidence(volumes, "", pv.Name, "spec.csi"))
		}
	}
	w.lostNode(pv)
	w.onNode(csi.Driver, pod)
	w.reachable(pv, pod)
	w.attachments(pv, pod)
	w.fine("the volume is %s", strings.ToLower(string(cmp.Or(pv.Status.Phase, "there"))))
}

// asServed returns a PersistentVolume of an in-tree plugin that was migrated to a driver
// with the name of that driver, and others as they are.
func asServed(pv *corev1.PersistentVolume) *corev1.PersistentVolume {
	driver := pv.Annotations[claim.MigratedToAnnotation]
	if pv.Spec.CSI != nil || driver == "" {
		return pv
	}
	served := pv.DeepCopy()
	served.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	return served
}

// reachable checks that the volume can be used on the pod's node.
func (w *walk) reachable(pv *corev1.PersistentVolume, pod *corev1.Pod) {
	if pod == nil || pv.Spec.NodeAffinity == nil {
		return
	}
	node := w.node(pod.Spec.NodeName)
	if node == nil || claim.FitsNode(pv.Spec.NodeAffinity, node.Name, node.Labels) {
		return
	}
	w.add(cause, Finding{What: fmt.Sprintf("the volume %s cannot be reached from the pod's node %s: it requires %s",
		pv.Name, node.Name, claim.DescribeAffinity(pv.Spec.NodeAffinity)),
		Evidence: []string{evidence(volumes, "", pv.Name, "spec.nodeAffinity"),
			evidence(nodes, "", node.Name, "metadata.labels")},
		Do: "Delete the pod so that it is scheduled again, and do not set spec.nodeName."})
}

func (w *walk) attachments(pv *corev1.PersistentVolume, pod *corev1.Pod) {
	if w.skipsAttach(pv.Spec.CSI.Driver) {
		return
	}
	var own *storagev1.VolumeAttachment
	for _, a := range list[storagev1.VolumeAttachment](w, attachments, "", "") {
		if a.Spec.Source.PersistentVolumeName == nil || *a.Spec.Source.PersistentVolumeName != pv.Name {
			continue
		}
		elsewhere := pod != nil && pod.Spec.NodeName != "" && a.Spec.NodeName != pod.Spec.NodeName
		if !elsewhere {
			own = &a
		}
		w.attachment(pv, &a, elsewhere)
	}
	if pod == nil || pod.Spec.NodeName == "" || w.onHost {
		return
	}
	if own == nil || !own.Status.Attached {
		w.limit(pv.Spec.CSI.Driver, pod.Spec.NodeName)
	}
	if own == nil && !w.unreadable[attachments] && !w.unreadable[drivers] {
		w.add(following, Finding{What: fmt.Sprintf("no VolumeAttachment requests volume %s on node %s yet", pv.Name,
			pod.Spec.NodeName), Evidence: []string{"no VolumeAttachment names the volume and the node"},
			Do: "The attach/detach controller of kube-controller-manager creates the VolumeAttachment; if it does not, read its log."})
	}
}

// skipsAttach reports whether the driver's volumes need no attachment.
func (w *walk) skipsAttach(driver string) bool {
	object := w.driver(driver)
	return object != nil && object.Spec.AttachRequired != nil && !*object.Spec.AttachRequired
}

func (w *walk) attachment(pv *corev1.PersistentVolume, a *storagev1.VolumeAttachment, elsewhere bool) {
	from := func(field string) []string { return []string{evidence(attachments, "", a.Name, field)} }
	switch {
	case a.DeletionTimestamp != nil && a.Status.DetachError != nil:
		w.add(failing, attachFailure(fmt.Sprintf("the volume %s cannot be detached from node %s", pv.Name, a.Spec.NodeName),
			"ControllerUnpublishVolume", a.Status.DetachError, from("status.detachError")))
	case a.DeletionTimestamp != nil:
		w.add(waiting, Finding{What: fmt.Sprintf("the volume %s is being detached from node %s", pv.Name, a.Spec.NodeName),
			Since: a.DeletionTimestamp.Time, Evidence: from("metadata.deletionTimestamp"),
			Do: "If this lasts for minutes, check that the driver's controller (its attacher) runs, and read its log."})
	case elsewhere && a.Status.Attached && !shared(pv):
		w.add(cause, Finding{What: fmt.Sprintf("the volume %s is attached to node %s, and may be attached to one node only",
			pv.Name, a.Spec.NodeName), Since: a.CreationTimestamp.Time, Evidence: from("spec.nodeName"),
			Do: "End the pod that uses it there; if that node is certainly off, give it the out-of-service taint, so that the volume is detached."})
	case !a.Status.Attached && a.Status.AttachError != nil:
		w.add(failing, attachFailure(fmt.Sprintf("the volume %s cannot be attached to node %s", pv.Name, a.Spec.NodeName),
			"ControllerPublishVolume", a.Status.AttachError, from("status.attachError")))
	case !a.Status.Attached && w.now().Sub(a.CreationTimestamp.Time) > attachGracePeriod:
		w.add(waiting, Finding{What: fmt.Sprintf("the volume %s waits for its attachment to node %s, and the driver's attacher has not responded", pv.Name, a.Spec.NodeName), Since: a.CreationTimestamp.Time, Evidence: from("status"),
			Do: fmt.Sprintf("Check that the controller of driver %s (its attacher) runs, and read its log.", a.Spec.Attacher)})
	}
}

func shared(pv *corev1.PersistentVolume) bool {
	return slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) ||
		slices.Contains(pv.Spec.AccessModes, corev1.ReadOnlyMany)
}

func attachFailure(what, call string, failed *storagev1.VolumeError, from []string) Finding {
	_, code := callOf("", failed.Message)
	if failed.ErrorCode != nil && code == "" {
		code = codeName(*failed.ErrorCode)
	}
	return Finding{What: what, Since: failed.Time.Time, Call: call, Code: code, Error: failed.Message, Evidence: from}
}

// codeName returns the name of a gRPC code's number.
func codeName(number int32) string {
	names := []string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted",
		"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"}
	if number < 0 || int(number) >= len(names) {
		return fmt.Sprintf("Code(%d)", number)
	}
	return names[number]
}

// volumeDeletion reports why a released or deleted volume remains.
func (w *walk) volumeDeletion(pv *corev1.PersistentVolume) {
	policy := pv.Spec.PersistentVolumeReclaimPolicy
	w.adviseAbandon("pv", "", pv.Name)
	if list := w.warnings(volumes, pv, "VolumeFailedDelete"); len(list) > 0 {
		w.add(failing, failure(fmt.Sprintf("the volume %s cannot be deleted", pv.Name), volumes, list))
	} else if pv.Status.Phase == corev1.VolumeFailed {
		w.add(failing, Finding{What: fmt.Sprintf("the volume %s cannot be reclaimed", pv.Name), Error: pv.Status.Message, Evidence: []string{evidence(volumes, "", pv.Name, "status.message")}, Do: "See the log of the driver's controller (its provisioner)."})
	}
	if pv.DeletionTimestamp == nil {
		if policy == corev1.PersistentVolumeReclaimRetain && pv.Status.Phase == corev1.VolumeReleased {
			ref := pv.Spec.ClaimRef
			w.add(waiting, Finding{What: fmt.Sprintf("the volume %s is kept (Retain) after its claim %s was deleted", pv.Name, key(ref.Namespace, ref.Name)), Evidence: []string{evidence(volumes, "", pv.Name, "spec.persistentVolumeReclaimPolicy")},
				Do: "To use its data again, remove the claimRef (or its uid) and create a claim with its volumeName; to delete it, delete the PersistentVolume and then the volume in the storage system."})
		} else if policy == corev1.PersistentVolumeReclaimDelete {
			w.add(waiting, Finding{What: fmt.Sprintf("the volume %s is released and not deleted yet", pv.Name), Evidence: []string{evidence(volumes, "", pv.Name, "status.phase")}, Do: "Check that the driver's controller (its provisioner) runs."})
			w.dependents(pv)
		}
		return
	}
	w.dependents(pv)
	if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase == corev1.VolumeBound {
		w.add(cause, Finding{What: fmt.Sprintf("the volume %s is being deleted, and claim %s is bound to it", pv.Name,
			key(ref.Namespace, ref.Name)), Since: pv.DeletionTimestamp.Time,
			Evidence: []string{evidence(volumes, "", pv.Name, "metadata.finalizers["+volumeProtection+"]")}, Do: "Delete the claim, too, if its data are not needed; the volume is then deleted."})
	}
	w.finalizers(volumes, pv)
}

// dependents names the attachments that keep a volume from being deleted.
func (w *walk) dependents(pv *corev1.PersistentVolume) {
	for _, a := range list[storagev1.VolumeAttachment](w, attachments, "", "") {
		if name := a.Spec.Source.PersistentVolumeName; name != nil && *name == pv.Name {
			w.add(cause, Finding{What: fmt.Sprintf("the volume %s is still attached to node %s", pv.Name, a.Spec.NodeName),
				Since: a.CreationTimestamp.Time, Evidence: []string{evidence(attachments, "", a.Name, "")},
				Do: "It is detached when no pod on that node uses it; 'holdfast why' for the pods there reports why they remain."})
		}
	}
}

// finalizers reports the finalizers of an object that is being deleted.
func (w *walk) finalizers(kind Kind, object metav1.Object) {
	for _, finalizer := range object.GetFinalizers() {
		owner, do := finalizerOwner(finalizer)
		w.add(following, Finding{What: fmt.Sprintf("%s %s waits for the removal of the finalizer %s (%s)", kind.Name(),
			object.GetName(), finalizer, owner), Since: deletedAt(object),
			Evidence: []string{evidence(kind, object.GetNamespace(), object.GetName(), "metadata.finalizers")}, Do: do})
	}
}

func finalizerOwner(finalizer string) (owner, do string) {
	const running = "Check that it runs, and read its log; removing the finalizer by hand may leak storage."
	switch {
	case finalizer == claimProtection:
		return "until no pod uses the claim", "End the pods that use it."
	case finalizer == volumeProtection:
		return "until no claim is bound to the volume", "Delete the claim."
	case finalizer == provisionerFinalizer:
		return "the driver's provisioner, until the storage is deleted", running
	case strings.HasPrefix(finalizer, attacherFinalizer):
		return "the driver's attacher, until the volume is detached everywhere", running
	case finalizer == snapshotSource:
		return "the snapshot controller, until the snapshot is taken", "Wait for the snapshot, or delete it."
	case finalizer == snapshotAsSource:
		return "the snapshot controller, until claims are restored from it", "Wait for these claims, or delete them."
	case finalizer == snapshotBound:
		return "the snapshot controller, until its content is released", running
	case finalizer == contentProtection:
		return "the snapshotter, until the snapshot in the storage is deleted", running
	}
	return "the program that set it", "Find the program that sets this finalizer, and check that it runs."
}

// calls reports the steps of a host for an object that failed or are in flight.
func (w *walk) calls(kind, namespace, name string) {
	if !w.onHost {
		return
	}
	calls, err := w.host.Calls(w.ctx, kind, key(namespace, name))
	if err != nil {
		w.readFailed("the host's work on  "+name, err)
		return
	}
	for _, c := range calls {
		f := Finding{What: fmt.Sprintf("the step %q for %s %s fails", c.Step, kind, name), Since: c.Since, Code: c.Code,
			Attempts: c.Attempts, Error: c.Error,
			Evidence: []string{"the host's journal"}}
		if found := rpcNames.FindString(c.Error); found != "" {
			f.Call = found
		}
		if f.Code == "" {
			_, f.Code = callOf("", c.Error)
		}
		if w.mergeFailure(f) {
			continue
		}
		if c.Running && c.Error == "" {
			f.What = fmt.Sprintf("the step %q for %s %s has not ended yet", c.Step, kind, name)
			f.Do = "Wait; if it does not end, read the driver's log."
			if c.Progress != "" {
				f.What = fmt.Sprintf("the step %q for %s %s is under way: %s", c.Step, kind, name, c.Progress)
				f.Do = "Wait."
			}
			w.add(waiting, f)
			continue
		}
		w.add(failing, f)
	}
}

// mergeFailure merges a failure from a host's journal into the finding that was made
// from an event of the same failure. It reports whether there is such a finding.
func (w *walk) mergeFailure(f Finding) bool {
	for i := range w.report.Findings {
		known := &w.report.Findings[i]
		if f.Error == "" || !strings.Contains(known.Error, f.Error) {
			continue
		}
		known.Attempts = max(known.Attempts, f.Attempts)
		known.Evidence = append(known.Evidence, f.Evidence...)
		known.Call, known.Code = cmp.Or(known.Call, f.Call), cmp.Or(known.Code, f.Code)
		return true
	}
	return false
}
