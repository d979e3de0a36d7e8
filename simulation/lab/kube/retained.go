package kube

import (
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
)

// retained is what administrators retain, and which processes can know it: the policy may
// become Retain after the last read before a deletion.
type retained struct {
	mu sync.Mutex
	// since is the step in which the policy of an object became Retain.
	since map[string]int
	// read is the last step in which a process read an object from the API server.
	read map[string]int
	// gone has the object of a volume or snapshot that was deleted with policy Retain.
	gone map[string]string
	// moved has the first object of a volume that was given to another PersistentVolume.
	moved map[string]string
	// deleting are the volumes and snapshots whose deletion a process has begun, and raced
	// those of them that were retained when no process could know it any more.
	deleting, raced map[string]bool
}

func newRetained() *retained {
	return &retained{
		since: map[string]int{}, read: map[string]int{}, gone: map[string]string{}, moved: map[string]string{},
		deleting: map[string]bool{}, raced: map[string]bool{},
	}
}

// about is the key of an object.
func about(resource, name string) string { return resource + "/" + name }

// keep notes that an object of a volume or snapshot is retained from now on.
func (r *retained) keep(key, handle string, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since[key] = step
	if r.deleting[handle] {
		r.raced[handle] = true
	}
}

// reads notes that a process reads an object.
func (r *retained) reads(p *process, key string, step int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read[p.Name()+" "+key] = step
}

// known reports whether a process must know that an object is retained.
func (r *retained) known(p *process, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	read, ok := r.read[p.Name()+" "+key]
	return !ok || r.since[key] <= read
}

// ends notes that the object of a volume or snapshot was deleted with policy Retain.
func (r *retained) ends(key, handle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone[handle] = key
}

// givesUp notes that an administrator decides that a volume or snapshot may be deleted.
func (r *retained) givesUp(handle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.gone, handle)
}

// wasLeft reports whether the object of a volume or snapshot was deleted with policy Retain.
func (r *retained) wasLeft(handle string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone[handle] != ""
}

// moves notes that another PersistentVolume gets a volume.
func (r *retained) moves(handle, from string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved[handle] = from
}

// begun reports whether a process has begun to delete a volume or snapshot.
func (r *retained) begun(handle string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deleting[handle]
}

// lost reports whether a volume or snapshot may be gone although it is retained: its deletion
// had begun.
func (r *retained) lost(handle string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raced[handle]
}

// begins notes that a process deletes a volume or snapshot, of which objects are retained. It
// returns the object of which the process must know that; "" for none.
func (r *retained) begins(p *process, handle string, kept []string) string {
	r.mu.Lock()
	left, from := r.gone[handle], r.moved[handle]
	r.deleting[handle] = true
	r.mu.Unlock()
	if len(kept) == 0 && left != "" {
		kept = []string{left}
	}
	if len(kept) == 0 {
		return ""
	}
	for _, key := range kept {
		if r.known(p, key) && (from == "" || r.known(p, from)) {
			return key
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raced[handle] = true
	return ""
}

// retain sets the policy of a PersistentVolume to Retain.
func (w *World) retain(pv *corev1.PersistentVolume) {
	w.lab.Note("volume %s", pv.Name)
	w.retained.keep(about(volumes, pv.Name), pv.Spec.CSI.VolumeHandle, w.lab.Steps())
	w.change(pv, func(o object) {
		asVolume(o).Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
}

// giveUpVolume sets the policy of a PersistentVolume to Delete.
func (w *World) giveUpVolume(pv *corev1.PersistentVolume) {
	w.retained.givesUp(pv.Spec.CSI.VolumeHandle)
	w.change(pv, func(o object) {
		asVolume(o).Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	})
}

// retainContent sets the policy of a content to Retain.
func (w *World) retainContent(content *snapshotv1.VolumeSnapshotContent) {
	w.lab.Note("content %s", content.Name)
	w.retained.keep(about(contents, content.Name), snapshotOf(content), w.lab.Steps())
	w.change(content, func(o object) { asContent(o).Spec.DeletionPolicy = snapshotv1.VolumeSnapshotContentRetain })
}

// retainNow sets the policy of a PersistentVolume or content to Retain, if there is one.
func (w *World) retainNow(resource, name string) {
	if pv, ok := get[*corev1.PersistentVolume](w.mirror, resource, "", name); ok {
		w.retain(pv)
	}
	if content, ok := get[*snapshotv1.VolumeSnapshotContent](w.mirror, resource, "", name); ok {
		w.retainContent(content)
	}
}

// takeAway is what an administrator does who wants the data of a new volume, and not its
// claim: he retains the volume, and deletes the claim by force, and perhaps the
// PersistentVolume.
func (w *World) takeAway(name string) {
	pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", name)
	if !ok || pv.Spec.ClaimRef == nil {
		return
	}
	w.lab.Note("* an administrator takes a new volume away from its claim")
	w.retain(pv)
	if pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name); ok {
		w.removePodsOf(pvc)
		w.drop(pvc)
	}
	if w.lab.OneIn(2) {
		pv, _ = get[*corev1.PersistentVolume](w.mirror, volumes, "", name)
		w.drop(pv)
	}
}

// removeUnseen is what an administrator does who retains and deletes a new PersistentVolume, and
// not its claim, while the watches of PersistentVolumes are interrupted.
func (w *World) removeUnseen(name string) {
	pv, ok := get[*corev1.PersistentVolume](w.mirror, volumes, "", name)
	if !ok {
		return
	}
	w.lab.Note("* an administrator deletes a new PersistentVolume that no watch shows")
	w.server.BreakWatchesOf(volumes)
	w.retain(pv)
	pv, _ = get[*corev1.PersistentVolume](w.mirror, volumes, "", name)
	w.drop(pv)
	w.server.Compact()
}

// snapshotOf is the handle of a content's snapshot; "" if it has none yet.
func snapshotOf(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Status == nil || content.Status.SnapshotHandle == nil {
		return ""
	}
	return *content.Status.SnapshotHandle
}

func asContent(o object) *snapshotv1.VolumeSnapshotContent {
	c, _ := o.(*snapshotv1.VolumeSnapshotContent)
	return c
}
