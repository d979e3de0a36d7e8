package host

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// volumesOfContainers: a container that runs has its volumes.
func (w *world) volumesOfContainers() error {
	for _, c := range w.running() {
		for _, path := range c.paths {
			if w.machine.find(path) == nil {
				return fmt.Errorf("container %s of pod %s runs without its volume at %s", c.name, c.uid, path)
			}
		}
	}
	return nil
}

// records are the host's records that no watcher sees.
type records struct {
	uses    []*store.VolumeUse
	intents []*store.Provisioning
}

func (w *world) records() (r records, err error) {
	err = w.host.host.Store().View(func(tx *store.Tx) (err error) {
		if r.uses, err = tx.Uses().All(); err != nil {
			return err
		}
		r.intents, err = tx.Provisionings().All()
		return err
	})
	return r, err
}

// converged returns an error until everything is as the objects say. What cannot be so must
// be explained.
func (w *world) converged() error {
	w.storage.endGivenUp()
	if w.host == nil || !w.host.ready {
		return errors.New("the host is not ready")
	}
	if w.repairs {
		w.repairs = false
		if w.prepare() > 0 {
			return errors.New("what was removed is made again")
		}
	}
	r, err := w.records()
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for _, intent := range r.intents {
		if pvc := w.objects.claim(intent.Claim); pvc != nil && pvc.UID == intent.ClaimUID && pvc.DeletionTimestamp != nil && w.needed(pvc) {
			open["id-"+intent.VolumeName] = true
			continue // it is resolved when nothing uses the claim any more
		}
		return fmt.Errorf("the volume of claim %s is being made: %s; %s", intent.Claim, intent.LastError, w.reasons("pvc", intent.Claim))
	}
	for _, check := range []func() error{w.claimsAreBound, w.podsRun, w.snapshotsAreReady, w.volumesAreReclaimed} {
		if err := check(); err != nil {
			return err
		}
	}
	return errors.Join(w.usesAreTrue(r.uses), w.nothingLeaks(open))
}

func (w *world) claimsAreBound() error {
	for _, pvc := range list[*corev1.PersistentVolumeClaim](w.objects) {
		key := store.KeyOf(pvc)
		switch {
		case pvc.DeletionTimestamp != nil && !w.needed(pvc):
			return fmt.Errorf("claim %s is being deleted, kept by %v %s", key, pvc.Finalizers, w.reasons("pvc", key))
		case pvc.Status.Phase == corev1.ClaimBound:
			if err := w.isTrue(pvc); err != nil {
				return err
			}
		case w.mustBind(pvc):
			return fmt.Errorf("claim %s is %s %s", key, pvc.Status.Phase, w.reasons("pvc", key))
		default:
			if err := w.explained("pvc", key); err != nil {
				return err
			}
		}
	}
	return nil
}

// needed: a pod uses the claim, or a copy of it is made.
func (w *world) needed(pvc *corev1.PersistentVolumeClaim) bool {
	for _, pod := range list[*corev1.Pod](w.objects) {
		if slices.Contains(claimsOf(pod), pvc.Name) && pod.DeletionTimestamp == nil {
			return true
		}
	}
	return slices.ContainsFunc(w.snapshots(), func(s *snapshotv1.VolumeSnapshot) bool {
		return s.Spec.Source.PersistentVolumeClaimName != nil && *s.Spec.Source.PersistentVolumeClaimName == pvc.Name && !isReady(s)
	}) || slices.ContainsFunc(list[*corev1.PersistentVolumeClaim](w.objects), func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.DataSource != nil && c.Spec.DataSource.Name == pvc.Name && c.Status.Phase != corev1.ClaimBound
	})
}

func claimsOf(pod *corev1.Pod) (names []string) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, claim.EphemeralClaimName(pod.Name, volume.Name))
		}
	}
	return names
}

func (w *world) class(pvc *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if pvc.Spec.StorageClassName == nil {
		return nil
	}
	class, _ := w.objects.byKey["storageclasses "+*pvc.Spec.StorageClassName].(*storagev1.StorageClass)
	return class
}

// mustBind: nothing of the world prevents it.
func (w *world) mustBind(pvc *corev1.PersistentVolumeClaim) bool {
	class := w.class(pvc)
	return pvc.DeletionTimestamp == nil && pvc.Spec.DataSource == nil && pvc.Spec.VolumeName == "" &&
		class != nil && *class.VolumeBindingMode == storagev1.VolumeBindingImmediate
}

// isTrue: the status of a bound claim is that of its volume.
func (w *world) isTrue(pvc *corev1.PersistentVolumeClaim) error {
	pv := w.objects.volume(pvc.Spec.VolumeName)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return fmt.Errorf("claim %s is Bound to %q, which is not bound to it", pvc.Name, pvc.Spec.VolumeName)
	}
	said, has := pvc.Status.Capacity[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	size := w.storage.driver.Size(pv.Spec.CSI.VolumeHandle)
	if size == 0 && strings.HasPrefix(pv.Name, importPrefix) {
		return nil // it was imported while it was being deleted
	}
	if said.Value() > size || has.Value() > size {
		return fmt.Errorf("claim %s has %s, its volume says %s and has %d bytes", pvc.Name, said.String(), has.String(), size)
	}
	return nil
}

func (w *world) podsRun() error {
	for _, pod := range list[*corev1.Pod](w.objects) {
		key := store.KeyOf(pod)
		switch {
		case pod.DeletionTimestamp != nil:
			return fmt.Errorf("pod %s is being deleted %s", key, w.reasons("pod", key))
		case pod.Status.Phase != corev1.PodPending:
			if err := w.containersAreTrue(pod); err != nil {
				return err
			}
			continue
		case w.mustRun(pod):
			return fmt.Errorf("pod %s is %s %s", key, pod.Status.Phase, w.reasons("pod", key))
		}
		if err := w.explained("pod", key); err != nil {
			return err
		}
	}
	return nil
}

// containersAreTrue: a container whose status says that it runs does.
func (w *world) containersAreTrue(pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		c := w.containers[string(pod.UID)+"/"+status.Name]
		if status.State.Running != nil && (c == nil || c.ended == nil) && pod.Annotations[pods.HolderAnnotation] == "" {
			return fmt.Errorf("container %s of pod %s is said to run and does not", status.Name, pod.Name)
		}
	}
	return nil
}

// mustRun: nothing of the world prevents it.
func (w *world) mustRun(pod *corev1.Pod) bool {
	for _, name := range claimsOf(pod) {
		pvc := w.objects.claim(store.Key(pod.Namespace, name))
		if pvc == nil || pvc.DeletionTimestamp != nil || pvc.Status.Phase != corev1.ClaimBound {
			return false
		}
		block := pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock
		if block != (len(pod.Spec.Containers[0].VolumeDevices) > 0) && !w.knewClaim(pod, pvc) {
			return false
		}
		if pv := w.objects.volume(pvc.Spec.VolumeName); pv == nil ||
			(w.isOncePod(pv) || w.twins(pv.Spec.CSI.VolumeHandle) > 1) && w.users(pv.Spec.CSI.VolumeHandle) > 1 {
			return false
		}
	}
	return true
}

// knewClaim: the pod is of a hold that was made when the claim existed, and the host gave it the
// claim's mode. A claim that was deleted and made again may have another one.
func (w *world) knewClaim(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) bool {
	return pod.Annotations[pods.HolderAnnotation] != "" && pvc.CreationTimestamp.Before(&pod.CreationTimestamp)
}

// isOncePod: a PersistentVolume of the volume gives it to one pod only.
func (w *world) isOncePod(pv *corev1.PersistentVolume) bool {
	return slices.ContainsFunc(list[*corev1.PersistentVolume](w.objects), func(other *corev1.PersistentVolume) bool {
		return other.Spec.CSI != nil && other.Spec.CSI.VolumeHandle == pv.Spec.CSI.VolumeHandle &&
			slices.Contains(other.Spec.AccessModes, corev1.ReadWriteOncePod)
	})
}

// users counts the pods that use a volume.
func (w *world) users(handle string) (count int) {
	for _, pod := range list[*corev1.Pod](w.objects) {
		for _, name := range claimsOf(pod) {
			pvc := w.objects.claim(store.Key(pod.Namespace, name))
			if pvc == nil {
				continue
			}
			if pv := w.objects.volume(pvc.Spec.VolumeName); pv != nil && pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
				count++
			}
		}
	}
	return count
}

func isReady(s *snapshotv1.VolumeSnapshot) bool {
	return s.Status != nil && s.Status.ReadyToUse != nil && *s.Status.ReadyToUse
}

func (w *world) snapshotsAreReady() error {
	for _, snapshot := range w.snapshots() {
		switch {
		case snapshot.DeletionTimestamp != nil && !w.restored(snapshot):
			return fmt.Errorf("snapshot %s is being deleted, kept by %v", snapshot.Name, snapshot.Finalizers)
		case isReady(snapshot), snapshot.DeletionTimestamp != nil:
			continue
		}
		source := w.objects.claim(store.Key(snapshot.Namespace, *snapshot.Spec.Source.PersistentVolumeClaimName))
		if source != nil && source.Status.Phase == corev1.ClaimBound && source.DeletionTimestamp == nil &&
			snapshot.Status != nil && snapshot.Status.Error == nil && !w.losesContent(snapshot) {
			return fmt.Errorf("snapshot %s is not ready %s", snapshot.Name, w.reasons("snapshot", store.KeyOf(snapshot)))
		}
		if err := w.explained("snapshot", store.KeyOf(snapshot)); err != nil {
			return err
		}
	}
	for _, content := range list[*snapshotv1.VolumeSnapshotContent](w.objects) {
		ref := content.Spec.VolumeSnapshotRef
		if content.DeletionTimestamp != nil && w.objects.byKey["volumesnapshots "+store.Key(ref.Namespace, ref.Name)] == nil && w.twins(snapshotOf(content)) < 2 {
			return fmt.Errorf("content %s is being deleted, kept by %v", content.Name, content.Finalizers)
		}
	}
	return nil
}

// losesContent: a user has deleted the content of the snapshot, which stays as long as the
// snapshot does, and no driver is asked for it.
func (w *world) losesContent(snapshot *snapshotv1.VolumeSnapshot) bool {
	return slices.ContainsFunc(list[*snapshotv1.VolumeSnapshotContent](w.objects), func(c *snapshotv1.VolumeSnapshotContent) bool {
		return c.Spec.VolumeSnapshotRef.UID == snapshot.UID && c.DeletionTimestamp != nil
	})
}

// restored: a claim is made from the snapshot.
func (w *world) restored(snapshot *snapshotv1.VolumeSnapshot) bool {
	return slices.ContainsFunc(list[*corev1.PersistentVolumeClaim](w.objects), func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.DataSource != nil && c.Spec.DataSource.Name == snapshot.Name && c.Status.Phase != corev1.ClaimBound
	})
}

// twins counts the objects that name a volume or a snapshot.
func (w *world) twins(handle string) (count int) {
	for _, pv := range list[*corev1.PersistentVolume](w.objects) {
		if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
			count++
		}
	}
	for _, content := range list[*snapshotv1.VolumeSnapshotContent](w.objects) {
		if snapshotOf(content) == handle {
			count++
		}
	}
	return count
}

func (w *world) volumesAreReclaimed() error {
	for _, pv := range list[*corev1.PersistentVolume](w.objects) {
		if pv.Spec.CSI == nil || w.twins(pv.Spec.CSI.VolumeHandle) > 1 {
			continue
		}
		ref := pv.Spec.ClaimRef
		bound := ref != nil && w.objects.claim(store.Key(ref.Namespace, ref.Name)) != nil
		released := pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
		if !bound && (pv.DeletionTimestamp != nil || released) {
			return fmt.Errorf("volume %s is %s, kept by %v", pv.Name, pv.Status.Phase, pv.Finalizers)
		}
	}
	return nil
}

// usesAreTrue compares the host's records with the mounts and with what the driver did.
func (w *world) usesAreTrue(uses []*store.VolumeUse) error { //nolint:gocognit // one oracle, from the record to the mounts
	mounts := map[string]bool{}
	for _, at := range w.machine.mounts {
		mounts[at.path] = true
	}
	for _, use := range uses {
		if w.waits(use) {
			delete(mounts, use.StagingPath)
			for path := range use.Targets {
				delete(mounts, path)
			}
			continue
		}
		known := w.storage.of(use.Handle)
		if use.Attach != store.PhaseNone && use.Attach != store.PhaseDone || use.Stage != store.PhaseNone && use.Stage != store.PhaseDone {
			return fmt.Errorf("volume %s: attach is %q, stage is %q: %s", use.Handle, use.Attach, use.Stage, use.LastError)
		}
		if (use.Attach == store.PhaseDone) != known.attached[use.NodeID] || (use.Stage == store.PhaseDone) != (known.staging != "") {
			return fmt.Errorf("volume %s is recorded as attach %q, stage %q; it is %s", use.Handle, use.Attach, use.Stage, known)
		}
		delete(mounts, use.StagingPath)
		for path, target := range use.Targets {
			if target.Phase != store.PhaseDone && target.Phase != store.PhaseNone {
				return fmt.Errorf("volume %s at %s is %q for pod %s: %s", use.Handle, path, target.Phase, target.Pod, use.LastError)
			}
			if target.Phase == store.PhaseDone && (!mounts[path] || !known.published[path]) {
				return fmt.Errorf("volume %s is recorded as published at %s, and is not", use.Handle, path)
			}
			if pod := w.objects.pod(target.Pod); pod == nil || pod.UID != target.PodUID {
				return fmt.Errorf("volume %s is published for pod %s, which is gone", use.Handle, target.Pod)
			}
			delete(mounts, path)
		}
	}
	for path := range mounts {
		return fmt.Errorf("%s is mounted, and no record has it", path)
	}
	return nil
}

// waits: a pod that waits, with a reason that is explained, uses the volume, whose steps are
// not complete.
func (w *world) waits(use *store.VolumeUse) bool {
	for _, target := range use.Targets {
		pod := w.objects.pod(target.Pod)
		if target.Phase != store.PhaseDone && pod != nil && pod.UID == target.PodUID && w.explained("pod", target.Pod) == nil {
			return true
		}
	}
	return false
}

// nothingLeaks: the driver has the volumes and snapshots that objects and intents name, and
// no others.
func (w *world) nothingLeaks(intents map[string]bool) error {
	for _, id := range slices.Sorted(maps.Values(w.storage.driver.Volumes())) {
		if w.twins(id) == 0 && !w.objects.kept[id] && !intents[id] {
			return fmt.Errorf("no object names volume %s of the driver", id)
		}
	}
	for _, id := range w.storage.driver.SnapshotsLeft() {
		if w.twins(id) == 0 && !w.objects.kept[id] {
			return fmt.Errorf("no object names snapshot %s of the driver", id)
		}
	}
	return nil
}

// subjects are the kinds as 'holdfast why' has them.
func subjects() map[string]string {
	return map[string]string{"pods": "pod", "persistentvolumeclaims": "pvc", "persistentvolumes": "pv", "volumesnapshots": "snapshot"}
}

// transient are the kinds that deleteEverything deletes, in order.
func transient() []string {
	return []string{"pods", "volumesnapshots", "persistentvolumeclaims", "volumesnapshotcontents", "persistentvolumes"}
}

func (w *world) deleteEverything() {
	for _, key := range slices.Sorted(maps.Keys(w.objects.byKey)) {
		kind, name, _ := strings.Cut(key, " ")
		if slices.Contains(transient(), kind) && w.objects.byKey[key].GetDeletionTimestamp() == nil {
			w.delete(kind, name, false)
		}
	}
}

// empty returns an error until nothing is left of the objects that are deleted.
func (w *world) empty() error {
	w.storage.endGivenUp()
	for _, kind := range transient() {
		for _, key := range slices.Sorted(maps.Keys(w.objects.byKey)) {
			if name, ok := strings.CutPrefix(key, kind+" "); ok {
				w.deleteEverything()
				return fmt.Errorf("%s %s is not gone, kept by %v %s", kind, name, w.objects.byKey[key].GetFinalizers(), w.reasons(subjects()[kind], name))
			}
		}
	}
	r, err := w.records()
	if err != nil {
		return err
	}
	switch attachments := list[*storagev1.VolumeAttachment](w.objects); {
	case len(r.uses) > 0:
		return fmt.Errorf("volume %s is recorded as in use: %s", r.uses[0].Handle, r.uses[0].LastError)
	case len(r.intents) > 0:
		return fmt.Errorf("an intent of claim %s is left", r.intents[0].Claim)
	case len(attachments) > 0:
		return fmt.Errorf("the attachment %s is left", attachments[0].Name)
	case len(w.machine.mounts) > 0:
		return fmt.Errorf("%s is mounted", w.machine.mounts[0].path)
	}
	for _, id := range slices.Sorted(maps.Keys(w.storage.ledger)) {
		if known := w.storage.ledger[id]; known.isInUse() && !known.givenUp {
			return fmt.Errorf("volume %s is %s", id, known)
		}
	}
	if entries, err := os.ReadDir(w.path("pods")); err != nil || len(entries) > 0 {
		return fmt.Errorf("a pod left %v, %w", entries, err)
	}
	return w.nothingLeaks(nil)
}

// noSecrets: no file and no log has the value of a Secret.
func (w *world) noSecrets() error {
	forms := [][]byte{[]byte(secret), []byte(base64.StdEncoding.EncodeToString([]byte(secret)))}
	has := func(what string, data []byte) error {
		for _, form := range forms {
			if bytes.Contains(data, form) {
				return fmt.Errorf("%s has the value of a Secret", what)
			}
		}
		return nil
	}
	failed := has("the log", w.log.Bytes())
	return errors.Join(failed, filepath.WalkDir(w.machine.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return has(strings.TrimPrefix(path, w.machine.root), data)
	}))
}
