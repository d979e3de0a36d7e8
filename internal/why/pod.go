package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
)

func (w *walk) podNamed(namespace, name string) {
	pod := w.pod(namespace, name)
	if pod == nil {
		w.absent(pods, Finding{What: fmt.Sprintf("pod %s does not exist in namespace %s", name, namespace),
			Do: "Find its name and namespace with 'get pods -A'."})
		return
	}
	switch {
	case pod.DeletionTimestamp != nil:
		w.podDeletion(pod)
		return
	case ended(pod):
		w.containers(pod)
		w.fine("the pod has ended (%s); it waits for no volume", pod.Status.Phase)
		return
	}
	w.containers(pod)
	if running(pod) {
		w.mounts(pod)
		w.fine("the pod runs; its volumes are mounted")
		return
	}
	w.fine("the pod is %s, and none of its volumes keeps it from running", strings.ToLower(string(pod.Status.Phase)))
	for _, gate := range pod.Spec.SchedulingGates {
		w.add(cause, Finding{What: "the pod waits for the removal of the scheduling gate " + gate.Name,
			Since: pod.CreationTimestamp.Time,
			Evidence: []string{evidence(pods, namespace, name,
				"spec.schedulingGates")}, Do: "The program that set the gate has to remove it."})
	}
	for i := range pod.Spec.Volumes {
		w.podVolume(pod, &pod.Spec.Volumes[i])
	}
	w.scheduling(pod)
	w.mounting(pod)
	w.calls("Pod", namespace, name)
	w.waitingForVolumes(pod)
}

// waitingForVolumes reports what a host says of the volumes that a pod waits for, such as
// another pod that uses one in another way, unless something else explains it.
func (w *walk) waitingForVolumes(pod *corev1.Pod) {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReadyToStartContainers && condition.Reason == "WaitingForVolumes" && len(w.report.Findings) == 0 {
			w.add(following, Finding{
				What: "the pod waits for its volumes", Error: condition.Message, Since: condition.LastTransitionTime.Time,
				Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "status.conditions[PodReadyToStartContainers]")},
				Do:       "Wait for the object that the message names, or delete it or this pod.",
			})
		}
	}
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func running(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && !slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool {
			return c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating"
		})
}

// deletedAt returns when the deletion of an object began. deletionTimestamp is the end
// of the grace period, which may lie in the future.
func deletedAt(object metav1.Object) time.Time {
	at := object.GetDeletionTimestamp().Time
	if grace := object.GetDeletionGracePeriodSeconds(); grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// podDeletion reports why a pod that is being deleted remains.
func (w *walk) podDeletion(pod *corev1.Pod) {
	since := deletedAt(pod)
	w.adviseAbandon("pod", pod.Namespace, pod.Name)
	for i := range pod.Spec.Volumes {
		w.driverOf(pod, &pod.Spec.Volumes[i])
	}
	if list := w.warnings(pods, pod, "FailedUnMount", "FailedUnmount", "FailedKillPod"); len(list) > 0 {
		w.add(failing, failure("a volume of the pod cannot be unmounted", pods, list))
	}
	w.calls("Pod", pod.Namespace, pod.Name)
	w.finalizers(pods, pod)
	if node := w.node(pod.Spec.NodeName); node != nil && !ready(node) {
		w.add(cause, Finding{What: fmt.Sprintf("the pod's node %s does not answer, so it is unknown whether its volumes are unmounted", node.Name), Since: since,
			Evidence: []string{evidence(nodes, "", node.Name, "status.conditions[Ready]")},
			Do:       "If the machine is certainly off, taint the node with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute; its volumes are then detached. Never do so while the machine may still write."})
	} else if pod.Spec.NodeName != "" && !w.onHost && node == nil {
		w.absent(nodes, Finding{What: "the pod's node " + pod.Spec.NodeName + " no longer exists", Since: since,
			Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "spec.nodeName")},
			Do:       "The garbage collector deletes the pod within minutes; if it does not, delete the pod with --grace-period=0 --force."})
	}
	w.add(following, Finding{What: "the pod is being deleted, and its containers still run or its volumes are still mounted", Since: since, Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "metadata.deletionTimestamp")},
		Do: "Wait for the end of its grace period; if it remains, inspect its node."})
}

// driverOf checks that the driver that has to unmount a volume is registered.
func (w *walk) driverOf(pod *corev1.Pod, volume *corev1.Volume) {
	name := ""
	switch {
	case volume.CSI != nil:
		name = volume.CSI.Driver
	case volume.PersistentVolumeClaim != nil, volume.Ephemeral != nil:
		claimName := pod.Name + "-" + volume.Name
		if volume.PersistentVolumeClaim != nil {
			claimName = volume.PersistentVolumeClaim.ClaimName
		}
		if pvc := w.claim(pod.Namespace, claimName); pvc != nil && pvc.Spec.VolumeName != "" {
			if pv := w.volume(pvc.Spec.VolumeName); pv != nil && pv.Spec.CSI != nil {
				name = pv.Spec.CSI.Driver
			}
		}
	}
	if name != "" {
		w.onNode(name, pod)
	}
}

func (w *walk) node(name string) *corev1.Node {
	if name == "" || w.onHost {
		return nil
	}
	return get[corev1.Node](w, nodes, "", name)
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (w *walk) podVolume(pod *corev1.Pod, volume *corev1.Volume) {
	switch {
	case volume.PersistentVolumeClaim != nil:
		w.claimNamed(pod.Namespace, volume.PersistentVolumeClaim.ClaimName, pod)
	case volume.Ephemeral != nil:
		w.ephemeral(pod, volume.Name)
	case volume.CSI != nil:
		w.inline(pod, volume.Name, volume.CSI)
	default:
		w.values(pod, volume)
	}
}

// values inspects a volume of Secrets or ConfigMaps.
func (w *walk) values(pod *corev1.Pod, volume *corev1.Volume) {
	kinds := map[string]Kind{podvalues.Secret: secrets, podvalues.ConfigMap: configMaps}
	found, _ := podvalues.OfVolume(volume)
	for _, source := range found.Sources {
		if !source.Optional {
			w.needs(kinds[source.Kind], "the pod's volume "+volume.Name, pod.Namespace, source.Name,
				evidence(pods, pod.Namespace, pod.Name, "spec.volumes"))
		}
	}
}

// ephemeral inspects the claim of a generic ephemeral volume. As in the kubelet, the
// pod has to be the claim's controller.
func (w *walk) ephemeral(pod *corev1.Pod, volume string) {
	name := pod.Name + "-" + volume
	found := w.claim(pod.Namespace, name)
	switch {
	case found == nil:
		f := Finding{What: fmt.Sprintf("the claim %s of the pod's ephemeral volume %s does not exist yet", name, volume),
			Since:    pod.CreationTimestamp.Time,
			Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "spec.volumes")},
			Do:       "If it is not created within seconds, a quota of the namespace may forbid it: read the pod's events and the namespace's ResourceQuota."}
		if list := w.warnings(pods, pod, "FailedCreate", "FailedBinding", "CreateClaimFailed"); len(list) > 0 {
			e := failure("", pods, list)
			f.Error, f.Attempts, f.Since, f.Evidence = e.Error, e.Attempts, e.Since, e.Evidence
		}
		w.absent(claims, f)
	case !metav1.IsControlledBy(found, pod):
		w.add(cause, Finding{What: fmt.Sprintf("the pod's ephemeral volume %s needs a claim %s, and a claim of that name exists that is not the pod's", volume, name), Since: pod.CreationTimestamp.Time,
			Evidence: []string{evidence(claims, pod.Namespace, name, "metadata.ownerReferences")},
			Do:       "Delete that claim if its data are not needed, or give the pod or the volume another name; an existing claim is not adopted."})
	default:
		w.claimNamed(pod.Namespace, name, pod)
	}
}

// inline inspects a CSI inline volume of the pod.
func (w *walk) inline(pod *corev1.Pod, volume string, source *corev1.CSIVolumeSource) {
	from := evidence(pods, pod.Namespace, pod.Name, "spec.volumes["+volume+"].csi")
	driver := w.driver(source.Driver)
	switch {
	case driver == nil:
		w.absent(drivers, Finding{What: fmt.Sprintf("driver %s of the pod's inline volume %s has no CSIDriver object, and only such an object can allow inline volumes", source.Driver, volume), Evidence: []string{from},
			Do: "Install the driver, or correct its name in the pod."})
	case !slices.Contains(driver.Spec.VolumeLifecycleModes, storagev1.VolumeLifecycleEphemeral):
		w.add(cause, Finding{What: fmt.Sprintf("driver %s does not support inline volumes (the pod's volume %s)",
			source.Driver, volume),
			Evidence: []string{from, evidence(drivers, "", source.Driver, "spec.volumeLifecycleModes")},
			Do:       "Use a claim or a generic ephemeral volume instead; to add the mode Ephemeral, delete the CSIDriver object and create it again."})
	}
	if source.NodePublishSecretRef != nil {
		w.secret("the pod's inline volume "+volume, pod.Namespace, source.NodePublishSecretRef.Name, from)
	}
	w.onNode(source.Driver, pod)
}

// secret checks that a secret exists. user is the object that needs it.
func (w *walk) secret(user, namespace, name, from string) {
	w.needs(secrets, user, namespace, name, from)
}

// needs checks that a Secret or a ConfigMap exists.
func (w *walk) needs(kind Kind, user, namespace, name, from string) {
	if name == "" || w.exists(kind, namespace, name) {
		return
	}
	word := map[Kind]string{secrets: "secret", configMaps: "ConfigMap"}[kind]
	w.add(cause, Finding{What: fmt.Sprintf("%s needs the %s %s in namespace %s, which does not exist", user, word, name,
		namespace), Evidence: []string{from},
		Do: "Create the " + word + ", or correct the reference to it."})
}

// scheduling reports why a pod has no node.
func (w *walk) scheduling(pod *corev1.Pod) {
	if w.onHost || pod.Spec.NodeName != "" {
		return
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse {
			continue
		}
		what, do := readScheduler(c.Message)
		r := waiting
		if do != "" {
			r = failing
		}
		w.add(r, Finding{What: what, Since: c.LastTransitionTime.Time, Error: c.Message, Do: do,
			Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "status.conditions[PodScheduled]")}})
		return
	}
	w.add(following, Finding{What: "the pod has no node yet", Since: pod.CreationTimestamp.Time,
		Evidence: []string{evidence(pods, pod.Namespace, pod.Name, "spec.nodeName")},
		Do:       "Check that the scheduler runs."})
}

// readScheduler returns the meaning of the scheduler's message about volumes, and the advice.
func readScheduler(message string) (what, do string) {
	for _, known := range []struct{ words, what, do string }{
		{"volume node affinity conflict", "no node that can run the pod can reach its volume", "Let the pod run where the volume is (its nodeSelector, affinity and taints), or move the data; volumes of classes with WaitForFirstConsumer are created where the pod can run."},
		{"exceed max volume count", "the nodes on which the pod could run have as many volumes as their driver allows",
			"Add a node, or move pods with volumes away; 'get csinodes -o yaml' shows the limits."},
		{"did not have enough free storage", "no node on which the pod could run has enough free storage for its claim",
			"Free space, request less, or wait until the driver reports more capacity (CSIStorageCapacity)."},
		{"node(s) didn't find available persistent volumes to bind", "no PersistentVolume that could be bound is reachable from a node on which the pod could run", "Create a volume there, or allow the pod on more nodes."},
		{"ReadWriteOncePod", "another pod uses the pod's ReadWriteOncePod volume",
			"Wait until the other pod ends, or delete it."},
		{"bound to non-existent persistentvolume", "the pod's claim is bound to a volume that no longer exists",
			"The claim is lost: restore its data into a new claim."},
		{"volume topology", "no node satisfies both the volume's topology and the pod's constraints",
			"Relax the pod's constraints, or the class' allowedTopologies."},
		{"CSI driver", "no node on which the pod could run runs the driver of its volume",
			"Run the driver's node service there; its pods may not tolerate the nodes' taints."},
	} {
		if strings.Contains(message, known.words) {
			return known.what, known.do
		}
	}
	if strings.Contains(message, "unbound immediate PersistentVolumeClaims") || strings.Contains(message, "not found") {
		return "the scheduler waits for the pod's claims", ""
	}
	return "the scheduler finds no node for the pod", ""
}

// mounting reports what fails on the pod's node.
func (w *walk) mounting(pod *corev1.Pod) {
	for _, c := range []struct{ what, reason string }{
		{"a volume of the pod cannot be attached to its node", "FailedAttachVolume"},
		{"a volume of the pod cannot be mounted on its node", "FailedMount"},
		{"a block volume of the pod cannot be mapped on its node", "FailedMapVolume"},
	} {
		list := w.warnings(pods, pod, c.reason)
		if len(list) == 0 {
			continue
		}
		w.mountFailure(pod, c.what, list)
	}
}

func (w *walk) mountFailure(pod *corev1.Pod, what string, list []corev1.Event) {
	// "timed out waiting for the condition" hides the reason that came before.
	if at := slices.IndexFunc(list, func(e corev1.Event) bool { return !strings.HasPrefix(e.Message, "Unable to attach or mount volumes") }); at > 0 {
		list = list[at:]
	}
	f, r := failure(what, pods, list), failing
	message := f.Error
	switch {
	case strings.Contains(message, "Multi-Attach error"):
		f.What, r = "the volume is attached to another node, and may be attached to one only", cause
		f.Do = "End the pod that uses it there; if that node is certainly off, give it the out-of-service taint, so that the volume is detached."
	case strings.Contains(message, "not found in the list of registered CSI drivers"):
		f.What, r = "the driver is not registered on the pod's node "+pod.Spec.NodeName, cause
		f.Do = "Check that the driver's node pod runs there and its registration socket is in the kubelet's plugins_registry."
	case strings.Contains(message, "already mounted by more than one pod"), strings.Contains(message, "volume uses the ReadWriteOncePod access mode and is already in use"):
		f.What, r = "another pod uses the pod's ReadWriteOncePod volume", cause
		f.Do = "Wait until the other pod ends, or delete it."
	case strings.Contains(message, "conflicting SELinux labels"):
		f.What, f.Do = "pods with other SELinux labels use the volume on this node", "Give the pods the same label, or set seLinuxChangePolicy: Recursive in them."
	case strings.Contains(message, "volume attachment is being deleted"), strings.Contains(message, "timed out waiting for external-attacher"):
		f.Do = "The driver's attacher has not finished: check that its controller runs, and read its log."
	case strings.Contains(message, "fsck"), strings.Contains(message, "wrong fs type"):
		f.Do = "The filesystem is damaged or has another type than requested: stop the pod and inspect it, or a snapshot of it."
	}
	w.add(r, f)
}

// onNode checks that a driver is registered on the pod's node.
func (w *walk) onNode(driver string, pod *corev1.Pod) {
	if w.onHost {
		w.registered(driver)
		return
	}
	if pod == nil || pod.Spec.NodeName == "" {
		return
	}
	node := get[storagev1.CSINode](w, csiNodes, "", pod.Spec.NodeName)
	if node == nil {
		w.absent(csiNodes, Finding{What: "no driver at all is registered on the pod's node " + pod.Spec.NodeName,
			Evidence: []string{evidence(csiNodes, "", pod.Spec.NodeName, "")},
			Do:       "Run the node service of driver " + driver + " there."})
		return
	}
	if !slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver }) {
		w.add(cause, Finding{What: fmt.Sprintf("driver %s is not registered on the pod's node %s", driver,
			pod.Spec.NodeName), Evidence: []string{evidence(csiNodes, "", node.Name, "spec.drivers")},
			Do: "Check that the driver's node pod runs there (taints, crashes), and that its registration socket is in the kubelet's plugins_registry."})
	}
}

// registered is onNode for a host, which has only one node.
func (w *walk) registered(driver string) {
	names, err := w.host.Registered(w.ctx)
	if err != nil {
		w.readFailed("the registered drivers", err)
		return
	}
	if slices.Contains(names, driver) {
		return
	}
	with := "none is"
	if len(names) > 0 {
		with = strings.Join(names, ", ") + " is"
	}
	w.add(cause, Finding{What: fmt.Sprintf("driver %s is not registered with this host (%s)", driver, with),
		Evidence: []string{"the host's list of drivers"},
		Do:       "Start the driver with its registration socket in ROOT/plugins_registry, or correct the driver's name."})
}

// limit checks whether the node has as many volumes as the driver allows.
func (w *walk) limit(driver, node string) {
	known := get[storagev1.CSINode](w, csiNodes, "", node)
	if known == nil {
		return
	}
	for _, d := range known.Spec.Drivers {
		if d.Name != driver || d.Allocatable == nil || d.Allocatable.Count == nil {
			continue
		}
		count := 0
		for _, a := range list[storagev1.VolumeAttachment](w, attachments, "", "") {
			if a.Spec.Attacher == driver && a.Spec.NodeName == node && a.Status.Attached {
				count++
			}
		}
		if count >= int(*d.Allocatable.Count) {
			w.add(cause, Finding{What: fmt.Sprintf("node %s has %d volumes of driver %s attached, and the limit is %d", node,
				count, driver, *d.Allocatable.Count),
				Evidence: []string{evidence(csiNodes, "", node, "spec.drivers[].allocatable.count")}, Do: "Let the pod run on another node, or move pods with volumes away from this one."})
		}
	}
}
