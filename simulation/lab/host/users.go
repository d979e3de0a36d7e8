package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	product "github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// secret is the value of all Secrets: it must not appear anywhere.
const secret = "planted-s3cr3t-value" //nolint:gosec // it is the simulation's own

// ask has a user call the host. The call ends with the host.
func (w *world) ask(what string, call func(ctx context.Context, h *product.Host) error) {
	hp := w.host
	if hp == nil || !hp.ready {
		return
	}
	w.asked++
	name := fmt.Sprintf("%s (%d)", what, w.asked)
	w.background.Go(func() {
		ctx, cancel := context.WithTimeout(hp.ctx, 10*time.Minute)
		defer cancel()
		if _, err := hp.process.Pass(ctx, lab.Step{Kind: "user", Object: name}); err != nil {
			return
		}
		if err := call(ctx, hp.host); err != nil {
			fmt.Fprintf(w.log, "USER %s: %v\n", what, err)
		}
	})
}

func (w *world) apply(what string, documents ...string) {
	file := manifest.File{Name: what, Data: []byte(strings.Join(documents, "\n---\n"))}
	w.ask("apply "+what, func(ctx context.Context, h *product.Host) error {
		_, err := h.Apply(ctx, []manifest.File{file}, api.ApplyOptions{})
		return err
	})
}

func (w *world) delete(resource, key string, abandon bool) {
	kind, _ := store.KindOf(resource)
	w.ask("delete "+resource+" "+key, func(ctx context.Context, h *product.Host) error {
		_, err := h.DeleteObject(ctx, kind, key, api.DeleteOptions{Abandon: abandon})
		return err
	})
}

// prepare applies what an administrator applies first, as far as it is not there.
func (w *world) prepare() (missing int) {
	for _, document := range append(w.admins(0), secrets()) {
		if !w.objects.has(document) {
			w.apply("first", document)
			missing++
		}
	}
	return missing
}

func secrets() string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: key, namespace: ns}\nstringData: {password: " + secret + "}"
}

// admins are the objects of the driver. Classes that are made again have other parameters.
func (w *world) admins(variant int) []string {
	class := func(name, policy, binding string) string {
		return fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %s}
provisioner: %s
reclaimPolicy: %s
volumeBindingMode: %s
allowVolumeExpansion: true
parameters:
  variant: "%d"
  csi.storage.k8s.io/fstype: ext4
  csi.storage.k8s.io/provisioner-secret-name: key
  csi.storage.k8s.io/provisioner-secret-namespace: ns
  csi.storage.k8s.io/node-stage-secret-name: key
  csi.storage.k8s.io/node-stage-secret-namespace: ns
  csi.storage.k8s.io/controller-publish-secret-name: key
  csi.storage.k8s.io/controller-publish-secret-namespace: ns`, name, driverName, policy, binding, variant)
	}
	documents := []string{
		fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: %s}
spec: {attachRequired: %t, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}`, driverName, w.storage.attach),
		class("fast", "Delete", "Immediate"), class("kept", "Retain", "Immediate"), class("late", "Delete", "WaitForFirstConsumer"),
		fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: snap}\ndriver: %s\ndeletionPolicy: Delete\nparameters: {variant: \"%d\"}", driverName, variant),
		fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: keep}\ndriver: %s\ndeletionPolicy: Retain", driverName),
	}
	for _, name := range []string{"silver", "gold"} {
		documents = append(documents, fmt.Sprintf("apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: %s}\ndriverName: %s\nparameters: {kind: %s}", name, driverName, name))
	}
	return documents
}

// actions are what users, administrators and the machine may do now.
func (w *world) actions() []lab.Action {
	if w.ended {
		return nil
	}
	if w.host == nil {
		return []lab.Action{{Name: "start the host", Do: w.tryStart, Weight: 6}, {Name: "reboot", Do: w.tryReboot}}
	}
	if w.host.over {
		return []lab.Action{{Name: "clean up after the host", Do: w.tryCrash}}
	}
	all := w.userActions()
	all = append(all, w.adminActions()...)
	return append(all, w.machineActions()...)
}

func (w *world) userActions() []lab.Action {
	return []lab.Action{
		{Name: "apply claim", Do: w.applyClaim, Weight: 10},
		{Name: "apply pod", Do: w.applyPod, Weight: 14},
		{Name: "hold", Do: w.hold, Weight: 3},
		{Name: "delete pod", Do: w.deleteOne("pods"), Weight: 6},
		{Name: "delete claim", Do: w.deleteOne("persistentvolumeclaims"), Weight: 5},
		{Name: "apply snapshot", Do: w.applySnapshot, Weight: 4},
		{Name: "delete snapshot", Do: w.deleteOne("volumesnapshots"), Weight: 3},
		{Name: "grow claim", Do: w.growClaim, Weight: 3},
		{Name: "modify claim", Do: w.modifyClaim, Weight: 3},
		{Name: "edit annotations", Do: w.annotate, Weight: 1},
		{Name: "delete the namespace's objects", Do: w.deleteAll, Weight: 1},
	}
}

func (w *world) adminActions() []lab.Action {
	return []lab.Action{
		{Name: "change a reclaim policy", Do: w.changePolicy, Weight: 2},
		{Name: "delete volume", Do: w.deleteOne("persistentvolumes"), Weight: 2},
		{Name: "delete content", Do: w.deleteOne("volumesnapshotcontents"), Weight: 1},
		{Name: "import a volume", Do: w.importVolume, Weight: 2},
		{Name: "make classes again", Do: w.remakeClasses, Weight: 1},
		{Name: "abandon", Do: w.abandon, Weight: 1},
		{Name: "delete secret", Do: func() { w.delete("secrets", "ns/key", false) }, Weight: 1},
		{Name: "apply what is missing", Do: func() { w.prepare() }, Weight: 4},
	}
}

// pick chooses an object of a kind by its key; "" if there is none.
func (w *world) pick(resource string) string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(w.objects.byKey)) {
		if name, ok := strings.CutPrefix(key, resource+" "); ok {
			keys = append(keys, name)
		}
	}
	if len(keys) == 0 {
		return ""
	}
	return keys[w.lab.Choose(len(keys))]
}

func (w *world) deleteOne(resource string) func() {
	return func() {
		if key := w.pick(resource); key != "" {
			w.delete(resource, key, false)
		}
	}
}

func (w *world) abandon() {
	resource := lab.Pick(w.lab, "persistentvolumes", "persistentvolumeclaims", "volumesnapshotcontents", "pods")
	if key := w.pick(resource); key != "" {
		w.objects.abandon(resource, key)
		if resource == "pods" {
			w.giveUpUses(w.objects.pod(key))
		}
		w.delete(resource, key, true)
	}
}

// giveUpUses notes the volumes of a pod that a user gives up: the driver may keep them
// attached or published.
func (w *world) giveUpUses(pod *corev1.Pod) {
	for _, volume := range pod.Spec.Volumes {
		name := claim.EphemeralClaimName(pod.Name, volume.Name)
		if volume.PersistentVolumeClaim != nil {
			name = volume.PersistentVolumeClaim.ClaimName
		}
		pvc := w.objects.claim(store.Key(pod.Namespace, name))
		if pvc == nil {
			continue
		}
		if pv := w.objects.volume(pvc.Spec.VolumeName); pv != nil && pv.Spec.CSI != nil {
			w.storage.of(pv.Spec.CSI.VolumeHandle).givenUp = true
		}
	}
	for _, known := range w.storage.ledger {
		for path := range known.published {
			known.givenUp = known.givenUp || strings.Contains(path, string(pod.UID))
		}
	}
}

// deleteAll deletes all objects of the namespace, as the end of a namespace does.
func (w *world) deleteAll() {
	for _, key := range slices.Sorted(maps.Keys(w.objects.byKey)) {
		if kind, name, _ := strings.Cut(key, " "); strings.HasPrefix(name, "ns/") && kind != "secrets" {
			w.delete(kind, name, false)
		}
	}
}

// free is a name that is not taken; sometimes, or if there is none, one that may be.
func (w *world) free(prefix, resource string, count int) string {
	for i := range count {
		if name := fmt.Sprintf("%s%d", prefix, i); w.objects.byKey[resource+" ns/"+name] == nil && w.lab.Choose(5) < 4 {
			return name
		}
	}
	return fmt.Sprintf("%s%d", prefix, w.lab.Choose(count))
}

func (w *world) applyClaim() {
	name := w.free("c", "persistentvolumeclaims", 5)
	class := lab.Pick(w.lab, "fast", "fast", "late", "kept")
	mode := lab.Pick(w.lab, "ReadWriteOnce", "ReadWriteOncePod")
	more := ""
	if w.lab.Choose(6) == 5 {
		more = "\n  volumeMode: Block"
	}
	switch w.lab.Choose(10) {
	case 8:
		more += "\n  dataSource: {kind: PersistentVolumeClaim, name: c0}"
	case 9:
		more += "\n  dataSource: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s0}"
	}
	w.apply("claim", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: ns}
spec:
  storageClassName: %s
  accessModes: [%s]
  resources: {requests: {storage: 1Gi}}%s`, name, class, mode, more))
}

func (w *world) applyPod() {
	name, claim := w.free("p", "pods", 4), fmt.Sprintf("c%d", w.lab.Choose(5))
	if existing := w.pick("persistentvolumeclaims"); existing != "" && w.lab.Choose(6) < 5 {
		_, claim, _ = strings.Cut(existing, "/")
	}
	source := fmt.Sprintf("persistentVolumeClaim: {claimName: %s}", claim)
	switch w.lab.Choose(12) {
	case 10:
		source = fmt.Sprintf("csi: {driver: %s, nodePublishSecretRef: {name: key}}", driverName)
	case 11:
		source = "ephemeral: {volumeClaimTemplate: {spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}"
	}
	use := "volumeMounts: [{name: data, mountPath: /data}]"
	if pvc := w.objects.claim("ns/" + claim); pvc != nil && pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		use = "volumeDevices: [{name: data, devicePath: /dev/data}]"
	}
	policy := lab.Pick(w.lab, "Always", "Never", "OnFailure")
	more := ""
	if w.lab.Choose(3) == 2 {
		more = "\n  securityContext: {fsGroup: 4321}"
	}
	w.apply("pod", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: ns}
spec:
  restartPolicy: %s
  terminationGracePeriodSeconds: %d
  containers: [{name: main, image: none, command: [run], %s}]
  volumes: [{name: data, %s}]%s`, name, policy, lab.Pick(w.lab, 5, 0, 60), use, source, more))
}

func (w *world) hold() {
	name, claim := fmt.Sprintf("h%d", w.lab.Choose(2)), fmt.Sprintf("c%d", w.lab.Choose(5))
	if w.objects.pod("ns/"+name) != nil {
		w.ask("release", func(ctx context.Context, h *product.Host) error {
			return h.Release(ctx, api.ReleaseRequest{Namespace: "ns", Name: name})
		})
		return
	}
	seconds := int64(lab.Pick(w.lab, 0, 3, 100))
	w.ask("hold", func(ctx context.Context, h *product.Host) error {
		_, err := h.Hold(ctx, api.HoldRequest{
			Namespace: "ns", Name: name, Holder: "a program", Volumes: []api.HoldVolume{{Name: "data", Claim: claim}},
			TimeoutSeconds: seconds, UntilReboot: seconds == 3,
		})
		return err
	})
}

func (w *world) applySnapshot() {
	w.apply("snapshot", fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: s%d, namespace: ns}
spec: {volumeSnapshotClassName: %s, source: {persistentVolumeClaimName: c%d}}`,
		w.lab.Choose(3), lab.Pick(w.lab, "snap", "snap", "keep", "misspelt"), w.lab.Choose(3)))
}

// edit applies a stored object with a change.
func edit[T store.Object](w *world, what string, object T, change func(T)) {
	edited, ok := object.DeepCopyObject().(T)
	if !ok {
		return
	}
	edited.SetResourceVersion("")
	change(edited)
	for _, kind := range store.Kinds() {
		if fmt.Sprintf("%T", kind.New()) == fmt.Sprintf("%T", edited) {
			edited.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
		}
	}
	data, err := json.Marshal(edited)
	if err != nil {
		w.violated("%s cannot be written: %v", what, err)
		return
	}
	w.apply(what, string(data))
}

func (w *world) growClaim() {
	if pvc := w.objects.claim(w.pick("persistentvolumeclaims")); pvc != nil {
		size := resource.MustParse(lab.Pick(w.lab, "2Gi", "3Gi", "1Gi"))
		edit(w, "claim", pvc, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests[corev1.ResourceStorage] = size })
	}
}

func (w *world) modifyClaim() {
	if pvc := w.objects.claim(w.pick("persistentvolumeclaims")); pvc != nil {
		class := lab.Pick(w.lab, "silver", "gold")
		edit(w, "claim", pvc, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &class })
	}
}

func (w *world) annotate() {
	if pvc := w.objects.claim(w.pick("persistentvolumeclaims")); pvc != nil {
		edit(w, "claim", pvc, func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	}
}

func (w *world) changePolicy() {
	if pv := w.objects.volume(w.pick("persistentvolumes")); pv != nil {
		policy := lab.Pick(w.lab, corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete)
		edit(w, "volume", pv, func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = policy })
	}
}

// importPrefix begins the names of PersistentVolumes that users make by hand.
const importPrefix = "import"

// isBeingMade: a claim waits for the volume. A user who imported it would make the claim
// wait for ever, and be told so.
func (w *world) isBeingMade(handle string) bool {
	return slices.ContainsFunc(list[*corev1.PersistentVolumeClaim](w.objects), func(pvc *corev1.PersistentVolumeClaim) bool {
		return pvc.DeletionTimestamp == nil && pvc.Spec.VolumeName == "" && handle == "id-pvc-"+string(pvc.UID)
	})
}

// importVolume makes a PersistentVolume by hand, for a volume that exists, perhaps a second
// one, or for the claim of another one.
func (w *world) importVolume() {
	handles := slices.DeleteFunc(slices.Sorted(maps.Values(w.storage.driver.Volumes())),
		func(id string) bool { return w.twins(id) == 0 && !w.objects.kept[id] || w.isBeingMade(id) })
	if len(handles) == 0 {
		return
	}
	handle := handles[w.lab.Choose(len(handles))]
	w.apply("import", fmt.Sprintf(`apiVersion: v1
kind: PersistentVolume
metadata: {name: %s%d}
spec:
  storageClassName: fast
  persistentVolumeReclaimPolicy: %s
  accessModes: [%s]
  capacity: {storage: 1Gi}
  claimRef: {namespace: ns, name: c%d}
  csi: {driver: %s, volumeHandle: %s}`, importPrefix, w.lab.Choose(2), lab.Pick(w.lab, "Retain", "Delete"),
		lab.Pick(w.lab, "ReadWriteOnce", "ReadWriteOncePod"), w.lab.Choose(5), driverName, handle))
}

// remakeClasses deletes the classes and makes them again with other parameters.
func (w *world) remakeClasses() {
	variant := w.lab.Choose(3)
	for _, name := range []string{"fast", "kept", "late"} {
		w.delete("storageclasses", name, false)
	}
	w.delete("volumesnapshotclasses", "snap", false)
	w.apply("classes", w.admins(variant)...)
}

// snapshots lists the snapshots.
func (w *world) snapshots() []*snapshotv1.VolumeSnapshot {
	return list[*snapshotv1.VolumeSnapshot](w.objects)
}
