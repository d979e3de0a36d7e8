package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// noProvisioner is the provisioner of classes whose volumes an administrator creates.
const noProvisioner = "kubernetes.io/no-provisioner"

const (
	defaultClass         = "storageclass.kubernetes.io/is-default-class"
	provisionerOf        = "volume.kubernetes.io/storage-provisioner"
	selectedNode         = "volume.kubernetes.io/selected-node"
	claimProtection      = "kubernetes.io/pvc-protection"
	volumeProtection     = "kubernetes.io/pv-protection"
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	attacherFinalizer    = "external-attacher/"
	snapshotSource       = "snapshot.storage.kubernetes.io/pvc-as-source-protection"
	snapshotBound        = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"
	snapshotAsSource     = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection"
	contentProtection    = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"
)

// claimNamed inspects a claim. pod is the pod that needs it, or nil.
func (w *walk) claimNamed(namespace, name string, pod *corev1.Pod) {
	if !w.once("claim " + key(namespace, name)) {
		return
	}
	pvc := w.claim(namespace, name)
	if pvc == nil {
		w.absent(claims, Finding{What: fmt.Sprintf("the claim %s in namespace %s does not exist", name, namespace),
			Do: "Create the claim, or correct its name where it is used."})
		return
	}
	if pvc.DeletionTimestamp != nil {
		w.claimDeletion(pvc)
		return
	}
	switch pvc.Status.Phase {
	case corev1.ClaimBound:
		w.bound(pvc, pod)
	case corev1.ClaimLost:
		what := fmt.Sprintf("the claim %s is lost: its volume %s no longer exists", name, pvc.Spec.VolumeName)
		w.add(cause, Finding{What: what, Evidence: []string{evidence(claims, namespace, name, "status.phase")},
			Do: "Restore the data into a new claim, or create a PersistentVolume of that name again for the same storage, with a claimRef to this claim."})
	default:
		w.pending(pvc, pod)
	}
}

func (w *walk) pending(pvc *corev1.PersistentVolumeClaim, pod *corev1.Pod) {
	what := "the claim " + pvc.Name
	if list := w.warnings(claims, pvc, "ProvisioningFailed", "VolumeProvisioningFailed", "ProvisioningCleanupFailed"); len(list) > 0 {
		w.add(failing, failure(fmt.Sprintf("the volume of %s cannot be created", what), claims, list))
	}
	w.calls("PersistentVolumeClaim", pvc.Namespace, pvc.Name)
	switch {
	case pvc.Spec.VolumeName != "":
		w.prebound(pvc)
		return
	case pvc.Spec.StorageClassName == nil:
		w.noClass(pvc)
		return
	case *pvc.Spec.StorageClassName == "":
		w.matching(pvc, "")
		return
	}
	name := *pvc.Spec.StorageClassName
	class := get[storagev1.StorageClass](w, classes, "", name)
	switch {
	case class == nil:
		if !w.anyFits(pvc, name) {
			w.absent(classes, Finding{What: fmt.Sprintf("%s asks for the class %s, which does not exist", what, name),
				Since:    pvc.CreationTimestamp.Time,
				Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.storageClassName")}, Do: "Create the class, or create the claim again with one that exists ('get storageclasses'); the class of a claim cannot be changed."})
		}
	case class.Provisioner == noProvisioner:
		w.matching(pvc, name)
	default:
		w.provisioning(pvc, class, pod)
	}
}

func (w *walk) noClass(pvc *corev1.PersistentVolumeClaim) {
	for _, class := range list[storagev1.StorageClass](w, classes, "", "") {
		if class.Annotations[defaultClass] == "true" {
			w.add(waiting, Finding{What: fmt.Sprintf("the claim %s names no class, and gets the default one, %s", pvc.Name,
				class.Name), Since: pvc.CreationTimestamp.Time, Do: "Wait."})
			return
		}
	}
	if w.anyFits(pvc, "") {
		return
	}
	w.absent(classes, Finding{What: fmt.Sprintf("the claim %s names no class, and there is no default one", pvc.Name),
		Since:    pvc.CreationTimestamp.Time,
		Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.storageClassName")},
		Do: "Mark a class as the default one (annotation " + defaultClass +
			": \"true\"), or create the claim again with a class."})
}

// prebound inspects a pending claim that names its volume.
func (w *walk) prebound(pvc *corev1.PersistentVolumeClaim) {
	pv := w.volume(pvc.Spec.VolumeName)
	from := []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.volumeName")}
	switch {
	case pv == nil:
		w.absent(volumes, Finding{What: fmt.Sprintf("the claim %s asks for the volume %s, which does not exist", pvc.Name, pvc.Spec.VolumeName), Evidence: from, Do: "Create the PersistentVolume, or create the claim again without the volume's name."})
	case pv.Spec.ClaimRef != nil && (pv.Spec.ClaimRef.Name != pvc.Name || pv.Spec.ClaimRef.Namespace != pvc.Namespace || (pv.Spec.ClaimRef.UID != "" && pv.Spec.ClaimRef.UID != pvc.UID)):
		w.add(cause, Finding{What: fmt.Sprintf("the claim %s asks for the volume %s, which belongs to claim %s", pvc.Name,
			pv.Name, key(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)),
			Evidence: append(from, evidence(volumes, "", pv.Name, "spec.claimRef")),
			Do:       "If that claim is deleted and this claim may have its data, remove uid and resourceVersion from the volume's claimRef and name this claim in it."})
	default:
		if reason := mismatch(pv, pvc, classOf(pvc)); reason != "" {
			w.add(cause, Finding{What: fmt.Sprintf("the volume %s does not match the claim %s: %s", pv.Name, pvc.Name, reason),
				Evidence: from, Do: "Create the claim or the volume again so that they match."})
		}
	}
}

// matching inspects a claim for which no driver creates a volume.
func (w *walk) matching(pvc *corev1.PersistentVolumeClaim, class string) {
	var reasons []string
	for _, pv := range list[corev1.PersistentVolume](w, volumes, "", "") {
		reason := mismatch(&pv, pvc, class)
		if reason == "" {
			w.add(waiting, Finding{What: fmt.Sprintf("the claim %s waits to be bound to volume %s, which matches", pvc.Name,
				pv.Name), Since: pvc.CreationTimestamp.Time,
				Evidence: []string{evidence(volumes, "", pv.Name, "")}, Do: "If its class has WaitForFirstConsumer, run a pod that uses the claim; otherwise wait: it is bound within seconds."})
			return
		}
		if pv.Spec.StorageClassName == class {
			reasons = append(reasons, pv.Name+": "+reason)
		}
	}
	slices.Sort(reasons)
	f := Finding{What: fmt.Sprintf("no PersistentVolume matches the claim %s, and no driver creates volumes for it (class %q)", pvc.Name, class), Since: pvc.CreationTimestamp.Time,
		Evidence: reasons[:min(len(reasons), 5)], Do: "Create a PersistentVolume of that class, size and access mode, or create the claim again with a class whose driver creates volumes."}
	w.absent(volumes, f)
}

func (w *walk) anyFits(pvc *corev1.PersistentVolumeClaim, class string) bool {
	all := list[corev1.PersistentVolume](w, volumes, "", "")
	return slices.ContainsFunc(all, func(pv corev1.PersistentVolume) bool { return mismatch(&pv, pvc, class) == "" })
}

// mismatch returns why a volume cannot be bound to a claim, "" if it can.
func mismatch(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim, class string) string {
	have, want := pv.Spec.Capacity[corev1.ResourceStorage], pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	ref := pv.Spec.ClaimRef
	switch {
	case pv.DeletionTimestamp != nil:
		return "it is being deleted"
	case pv.Status.Phase == corev1.VolumeReleased:
		return "it is released: its former claim " + key(ref.Namespace, ref.Name) + " is still in its claimRef"
	case ref != nil && (ref.Name != pvc.Name || ref.Namespace != pvc.Namespace):
		return "it belongs to claim " + key(ref.Namespace, ref.Name)
	case pv.Spec.StorageClassName != class:
		return fmt.Sprintf("its class is %q", pv.Spec.StorageClassName)
	case modeOf(pv.Spec.VolumeMode) != modeOf(pvc.Spec.VolumeMode):
		return fmt.Sprintf("its volumeMode is %s, and the claim wants %s", modeOf(pv.Spec.VolumeMode),
			modeOf(pvc.Spec.VolumeMode))
	case have.Cmp(want) < 0:
		return fmt.Sprintf("it has %s, and the claim wants %s", have.String(), want.String())
	}
	for _, mode := range pvc.Spec.AccessModes {
		if !slices.Contains(pv.Spec.AccessModes, mode) {
			return fmt.Sprintf("its access modes are %v, and the claim wants %s", pv.Spec.AccessModes, mode)
		}
	}
	if selector := pvc.Spec.Selector; selector != nil {
		for name, value := range selector.MatchLabels {
			if pv.Labels[name] != value {
				return fmt.Sprintf("it lacks the label %s=%s", name, value)
			}
		}
	}
	return ""
}

func modeOf(mode *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	if mode == nil {
		return corev1.PersistentVolumeFilesystem
	}
	return *mode
}

// provisioning inspects a claim for which a driver creates a volume.
func (w *walk) provisioning(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, pod *corev1.Pod) {
	w.source(pvc)
	if name := pvc.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		w.attributesClass(pvc, *name, class.Provisioner)
	}
	parsed, err := claim.ParseClass(class)
	if err != nil {
		w.add(cause, Finding{What: "the class of the claim " + pvc.Name +
			" is wrong", Error: err.Error(), Evidence: []string{evidence(classes, "", class.Name, "parameters")},
			Do: "Delete the class and create it again without the mistake; pending claims are then provisioned."})
	} else if resolved, err := parsed.ResolveSecrets(claim.VolumeTokens(pvc, claim.VolumeName(pvc.UID))); err != nil {
		w.add(cause, Finding{What: "a secret of the class of claim " + pvc.Name +
			" cannot be named", Error: err.Error(), Evidence: []string{evidence(classes, "", class.Name, "parameters")},
			Do: "Correct the class, or give the claim the annotation that the secret's name is made of."})
	} else if ref := resolved[claim.SecretProvision]; ref != nil {
		w.secret("class "+class.Name, ref.Namespace, ref.Name, evidence(classes, "", class.Name, "parameters"))
	}
	if w.consumer(pvc, class, pod) {
		return
	}
	w.provisioner(pvc, class)
}

// consumer reports whether the claim waits for its first pod, so that its volume is
// not created yet.
func (w *walk) consumer(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, pod *corev1.Pod) bool {
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
		pvc.Annotations[selectedNode] != "" {
		return false
	}
	from := []string{evidence(classes, "", class.Name, "volumeBindingMode")}
	users := w.users(pvc)
	switch {
	case pod != nil && w.onHost:
		return false
	case pod != nil:
		w.add(following, Finding{What: fmt.Sprintf("the volume of claim %s is created when the pod has a node", pvc.Name),
			Since: pvc.CreationTimestamp.Time, Evidence: from, Do: "See what the scheduler waits for."})
		return true
	case len(users) == 0 && w.unreadable[pods]:
		return false
	case len(users) == 0:
		w.add(waiting, Finding{What: fmt.Sprintf("the claim %s waits for a pod that uses it (its class %s has WaitForFirstConsumer)", pvc.Name, class.Name), Since: pvc.CreationTimestamp.Time, Evidence: from,
			Do: "Run a pod that uses the claim; nothing is wrong."})
		return true
	case w.onHost:
		return false
	}
	for _, user := range users {
		w.add(following, Finding{What: fmt.Sprintf("the claim %s waits until its pod %s has a node", pvc.Name, user.Name),
			Since: user.CreationTimestamp.Time, Evidence: from, Do: "Ask 'holdfast why pod/" + user.Name + "'."})
		w.scheduling(&user)
	}
	return true
}

// users are the pods that use a claim and have not ended.
func (w *walk) users(pvc *corev1.PersistentVolumeClaim) (found []corev1.Pod) {
	for _, pod := range list[corev1.Pod](w, pods, pvc.Namespace, "") {
		if ended(&pod) {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return (v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == pvc.Name) ||
				(v.Ephemeral != nil && pod.Name+"-"+v.Name == pvc.Name)
		}) {
			found = append(found, pod)
		}
	}
	return found
}

// provisioner checks that the driver of the class is installed and was called.
func (w *walk) provisioner(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) {
	driver := servedBy(pvc, class)
	if w.onHost {
		w.registered(driver)
	} else if w.driver(driver) == nil && !w.anyNodeHas(driver) && !strings.HasPrefix(driver, inTree) &&
		!w.unreadable[drivers] && !w.unreadable[csiNodes] {
		w.add(cause, Finding{What: fmt.Sprintf("no driver creates volumes for the class %s: driver %s is not installed",
			class.Name, driver), Since: pvc.CreationTimestamp.Time,
			Evidence: []string{evidence(classes, "", class.Name, "provisioner"), "no CSIDriver object and no CSINode names it"}, Do: "Install the driver, or correct the class' provisioner (create the class again)."})
		return
	}
	if !w.onHost {
		w.selected(pvc, driver)
	}
	if len(w.report.Findings) > 0 {
		return
	}
	asked := pvc.Annotations[provisionerOf] != ""
	f := Finding{What: fmt.Sprintf("driver %s has not created the volume of claim %s yet", driver, pvc.Name),
		Since:    pvc.CreationTimestamp.Time,
		Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "metadata.annotations["+provisionerOf+"]")},
		Do:       "If this lasts for minutes, check that the driver's controller (its provisioner) runs, and read its log."}
	if !asked && !w.onHost {
		f.What = fmt.Sprintf("driver %s has not been asked to create the volume of claim %s yet", driver, pvc.Name)
		f.Evidence = []string{"no annotation " + provisionerOf}
		f.Do = "Check that the kube-controller-manager runs."
	}
	w.add(waiting, f)
}

// inTree begins the names of the in-tree plugins of Kubernetes.
const inTree = "kubernetes.io/"

// servedBy returns the driver of a claim: the one of its class, or the one that replaced
// the in-tree plugin of its class.
func servedBy(pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) string {
	if !strings.HasPrefix(class.Provisioner, inTree) {
		return class.Provisioner
	}
	return cmp.Or(pvc.Annotations[claim.MigratedToAnnotation], pvc.Annotations[provisionerOf], class.Provisioner)
}

// selected checks that the node which was selected for a claim's volume runs the driver.
func (w *walk) selected(pvc *corev1.PersistentVolumeClaim, driver string) {
	node := pvc.Annotations[selectedNode]
	if node == "" || strings.HasPrefix(driver, inTree) {
		return
	}
	found := get[storagev1.CSINode](w, csiNodes, "", node)
	if w.unreadable[csiNodes] || found != nil && slices.ContainsFunc(found.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
		return
	}
	w.add(cause, Finding{
		What: fmt.Sprintf("node %[2]s, which was selected for the volume of claim %[1]s, does not run driver %[3]s",
			pvc.Name, node, driver),
		Since: pvc.CreationTimestamp.Time,
		Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "metadata.annotations["+selectedNode+"]"),
			evidence(csiNodes, "", node, "spec.drivers")},
		Do: fmt.Sprintf("Start the node or its driver. If the node was removed permanently, run 'holdfast abandon-node %s --driver %s': another node is selected then.",
			node, driver),
	})
}

func (w *walk) anyNodeHas(driver string) bool {
	return slices.ContainsFunc(list[storagev1.CSINode](w, csiNodes, "", ""), func(n storagev1.CSINode) bool {
		return slices.ContainsFunc(n.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	})
}

// source inspects the data source of the claim.
func (w *walk) source(pvc *corev1.PersistentVolumeClaim) {
	kind, group, name, namespace := "", "", "", pvc.Namespace
	if ref := pvc.Spec.DataSourceRef; ref != nil {
		kind, name = ref.Kind, ref.Name
		if ref.APIGroup != nil {
			group = *ref.APIGroup
		}
		if ref.Namespace != nil && *ref.Namespace != "" {
			namespace = *ref.Namespace
		}
	} else if ref := pvc.Spec.DataSource; ref != nil {
		kind, name = ref.Kind, ref.Name
		if ref.APIGroup != nil {
			group = *ref.APIGroup
		}
	}
	switch {
	case name == "" || !w.granted(pvc):
	case kind == "VolumeSnapshot":
		w.snapshotNamed(namespace, name)
	case kind == "PersistentVolumeClaim":
		w.cloned(pvc, namespace, name)
	default:
		w.add(waiting, Finding{What: fmt.Sprintf("the claim %s waits for a volume populator to fill it from %s %s (%s)",
			pvc.Name, kind, name, group), Since: pvc.CreationTimestamp.Time,
			Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name,
				"spec.dataSourceRef")}, Do: "Check that the populator for that kind runs, and read its log."})
	}
}

// granted reports whether a claim may be made of its source, which can be in another
// namespace.
func (w *walk) granted(pvc *corev1.PersistentVolumeClaim) bool {
	source, err := claim.SourceOf(pvc)
	if err != nil || source.Kind == claim.SourceNone || source.Namespace == pvc.Namespace {
		return true
	}
	var found []*grant.ReferenceGrant
	for _, version := range []Kind{grants, grantsBeta} {
		for _, grant := range list[grant.ReferenceGrant](w, version, source.Namespace, "") {
			found = append(found, &grant)
		}
	}
	if lifecycle.CheckGrant(pvc, source, found) == nil || w.unreadable[grants] || w.unreadable[grantsBeta] {
		return true
	}
	w.add(cause, Finding{
		What: fmt.Sprintf("the claim %s is made of %s in namespace %s, and no ReferenceGrant there lets claims of namespace %s use it",
			pvc.Name, source, source.Namespace, pvc.Namespace),
		Since:    pvc.CreationTimestamp.Time,
		Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.dataSourceRef.namespace")},
		Do:       "Have the owner of that namespace create one.",
	})
	return false
}

func (w *walk) cloned(pvc *corev1.PersistentVolumeClaim, namespace, name string) {
	from := []string{evidence(claims, pvc.Namespace, pvc.Name, "spec.dataSource")}
	source := w.claim(namespace, name)
	switch {
	case source == nil:
		w.absent(claims, Finding{What: fmt.Sprintf("the claim %s is a clone of claim %s, which does not exist", pvc.Name,
			name), Evidence: from, Do: "Correct the name of the source: create the claim again."})
	case source.Status.Phase != corev1.ClaimBound:
		w.add(following, Finding{What: fmt.Sprintf("the claim %s is a clone of claim %s, which is %s", pvc.Name, name,
			source.Status.Phase), Evidence: from, Do: "See what the source waits for."})
		w.claimNamed(namespace, name, nil)
	case modeOf(source.Spec.VolumeMode) != modeOf(pvc.Spec.VolumeMode):
		w.add(cause, Finding{What: fmt.Sprintf("the claim %s is a clone of claim %s, and their volume modes differ",
			pvc.Name, name), Evidence: from, Do: "Create the claim again with the source's volumeMode."})
	}
}

// claimDeletion reports why a claim that is being deleted remains.
func (w *walk) claimDeletion(pvc *corev1.PersistentVolumeClaim) {
	if slices.Contains(pvc.Finalizers, claimProtection) {
		for _, user := range w.users(pvc) {
			w.add(cause, Finding{What: fmt.Sprintf("the claim %s is being deleted, and pod %s still uses it", pvc.Name,
				user.Name), Since: pvc.DeletionTimestamp.Time,
				Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name,
					"metadata.finalizers["+claimProtection+"]")}, Do: "End the pod; the claim is then removed."})
		}
	}
	if slices.Contains(pvc.Finalizers, snapshotSource) {
		w.add(cause, Finding{What: fmt.Sprintf("the claim %s is being deleted, and a snapshot of it is being taken",
			pvc.Name), Since: pvc.DeletionTimestamp.Time,
			Evidence: []string{evidence(claims, pvc.Namespace, pvc.Name, "metadata.finalizers["+snapshotSource+"]")}, Do: "Wait for the snapshot, or delete it if it fails ('holdfast why snapshot/NAME')."})
	}
	if !slices.Contains(pvc.Finalizers, claimProtection) { // otherwise the pods have to end first
		w.adviseAbandon("pvc", pvc.Namespace, pvc.Name)
	}
	w.calls("PersistentVolumeClaim", pvc.Namespace, pvc.Name)
	w.finalizers(claims, pvc)
	w.fine("the claim is being deleted")
}

// classOf returns the claim's class, "" for none.
func classOf(pvc *corev1.PersistentVolumeClaim) string { return text(pvc.Spec.StorageClassName) }
