package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// objects is the content of the host's store, as a watcher sees it.
type objects struct {
	store *store.Store
	watch *store.Watch
	byKey map[string]store.Object // by resource and key
	// protected is when a volume or a snapshot came under protection, by handle.
	protected map[string]int
	// kept are handles that an administrator keeps without an object.
	kept map[string]bool
	// changed: something changed since protected was computed.
	changed bool
}

func newObjects() *objects {
	return &objects{byKey: map[string]store.Object{}, protected: map[string]int{}, kept: map[string]bool{}}
}

// follow begins with the state of a store that was opened.
func (o *objects) follow(opened *store.Store) {
	o.store, o.watch = opened, nil
}

func (o *objects) unfollow() { o.store, o.watch = nil, nil }

// read takes over what changed.
func (o *objects) read(tick int) error {
	if o.store == nil {
		return nil
	}
	if o.watch == nil {
		if err := o.readAll(); err != nil {
			return err
		}
	}
	changes, err := o.watch.Poll()
	if errors.Is(err, store.ErrExpired) {
		o.watch = nil
		return o.read(tick)
	}
	if err != nil {
		return err
	}
	for _, change := range changes {
		if err := o.change(change); err != nil {
			return err
		}
	}
	if o.changed {
		o.changed = false
		o.protect(tick)
	}
	return nil
}

func (o *objects) readAll() error {
	return o.store.View(func(tx *store.Tx) error {
		o.watch, o.changed = o.store.Watch(tx.Version()), true
		now := map[string]store.Object{}
		for _, kind := range store.Kinds() {
			all, err := tx.Objects(kind).All()
			if err != nil {
				return err
			}
			for _, object := range all {
				now[kind.Resource+" "+store.KeyOf(object)] = object
			}
		}
		for _, key := range slices.Sorted(maps.Keys(o.byKey)) {
			if now[key] == nil {
				o.deleted(o.byKey[key])
			}
		}
		o.byKey = now
		return nil
	})
}

func (o *objects) change(change store.Change) error {
	o.changed = true
	key := change.Kind.Resource + " " + change.Key
	if change.Deleted {
		if before := o.byKey[key]; before != nil {
			o.deleted(before)
		}
		delete(o.byKey, key)
		return nil
	}
	object, err := change.Object()
	if err != nil {
		return err
	}
	o.byKey[key] = object
	return nil
}

// deleted notes what is kept although its object is gone.
func (o *objects) deleted(object store.Object) {
	switch object := object.(type) {
	case *corev1.PersistentVolume:
		neverBound := object.Spec.ClaimRef == nil || object.Spec.ClaimRef.UID == ""
		if object.Spec.CSI != nil && (neverBound || object.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete) {
			o.kept[object.Spec.CSI.VolumeHandle] = true
		}
	case *snapshotv1.VolumeSnapshotContent:
		if handle := snapshotOf(object); object.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete && handle != "" {
			o.kept[handle] = true
		}
	}
}

func snapshotOf(content *snapshotv1.VolumeSnapshotContent) string {
	switch {
	case content.Status != nil && content.Status.SnapshotHandle != nil:
		return *content.Status.SnapshotHandle
	case content.Spec.Source.SnapshotHandle != nil:
		return *content.Spec.Source.SnapshotHandle
	}
	return ""
}

// list returns the objects of a kind, sorted by key.
func list[T store.Object](o *objects) (all []T) {
	for _, key := range slices.Sorted(maps.Keys(o.byKey)) {
		if object, ok := o.byKey[key].(T); ok {
			all = append(all, object)
		}
	}
	return all
}

func (o *objects) claim(key string) *corev1.PersistentVolumeClaim {
	claim, _ := o.byKey["persistentvolumeclaims "+key].(*corev1.PersistentVolumeClaim)
	return claim
}

func (o *objects) pod(key string) *corev1.Pod {
	pod, _ := o.byKey["pods "+key].(*corev1.Pod)
	return pod
}

// hasPodAt reports whether a path of a volume is that of a pod that exists.
func (o *objects) hasPodAt(path string) bool {
	return slices.ContainsFunc(list[*corev1.Pod](o), func(pod *corev1.Pod) bool { return strings.Contains(path, string(pod.UID)) })
}

func (o *objects) volume(name string) *corev1.PersistentVolume {
	volume, _ := o.byKey["persistentvolumes "+name].(*corev1.PersistentVolume)
	return volume
}

// abandon notes what may be left behind when a user gives up an object.
func (o *objects) abandon(resource, key string) {
	switch object := o.byKey[resource+" "+key].(type) {
	case *corev1.PersistentVolumeClaim:
		o.kept["id-"+"pvc-"+string(object.UID)] = true
	case *corev1.PersistentVolume:
		if object.Spec.CSI != nil {
			o.kept[object.Spec.CSI.VolumeHandle] = true
		}
	case *snapshotv1.VolumeSnapshotContent:
		o.kept[snapshotOf(object)] = true
		o.kept["id-"+strings.Replace(object.Name, "snapcontent-", "snapshot-", 1)] = true
	}
}

// protect computes which volumes and snapshots must not be deleted.
func (o *objects) protect(tick int) {
	now := map[string]bool{}
	naming, keeping := map[string]int{}, map[string]bool{}
	for _, pv := range list[*corev1.PersistentVolume](o) {
		if pv.Spec.CSI == nil {
			continue
		}
		handle := pv.Spec.CSI.VolumeHandle
		if pv.DeletionTimestamp == nil {
			naming[handle]++
			// Two that are both released with policy Delete go together, with the volume.
			keeping[handle] = keeping[handle] || pv.Status.Phase != corev1.VolumeReleased
		}
		if o.isProtected(pv) || naming[handle] > 1 && keeping[handle] {
			now[handle] = true
		}
	}
	for _, content := range list[*snapshotv1.VolumeSnapshotContent](o) {
		handle := snapshotOf(content)
		if handle != "" && (content.DeletionTimestamp == nil || content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain) {
			now[handle] = true
		}
	}
	for handle := range o.protected {
		if !now[handle] {
			delete(o.protected, handle)
		}
	}
	for handle := range now {
		if _, known := o.protected[handle]; !known {
			o.protected[handle] = tick
		}
	}
}

func (o *objects) isProtected(pv *corev1.PersistentVolume) bool {
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		return true
	}
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return pv.DeletionTimestamp == nil
	}
	claim := o.claim(store.Key(ref.Namespace, ref.Name))
	return claim != nil && (ref.UID == "" || ref.UID == claim.UID) && claim.DeletionTimestamp == nil
}

// mayDeleteVolume: no volume is deleted that an object names. The object must have been
// there when the controller's call began: what changes during the call is too late.
func (w *world) mayDeleteVolume(handle string) {
	since, protected := w.objects.protected[handle]
	if !protected {
		return
	}
	began := w.tick
	for _, pv := range list[*corev1.PersistentVolume](w.objects) {
		if call, known := w.calls["persistentvolumes "+pv.Name]; known && pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
			began = min(began, call)
		}
	}
	if since < began {
		w.violated("DeleteVolume of %s, which an object names: %s", handle, w.objects.naming(handle))
	}
}

// naming describes the PersistentVolumes of a volume.
func (o *objects) naming(handle string) string {
	var text []string
	for _, pv := range list[*corev1.PersistentVolume](o) {
		if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle {
			text = append(text, fmt.Sprintf("%s is %s with policy %s, deleted %t, for claim %+v", pv.Name, pv.Status.Phase,
				pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp != nil, pv.Spec.ClaimRef))
		}
	}
	return strings.Join(text, "; ")
}

func (w *world) mayDeleteSnapshot(handle string) {
	since, protected := w.objects.protected[handle]
	if !protected {
		return
	}
	began := w.tick
	for _, content := range list[*snapshotv1.VolumeSnapshotContent](w.objects) {
		if call, known := w.calls["volumesnapshotcontents "+content.Name]; known && snapshotOf(content) == handle {
			began = min(began, call)
		}
	}
	if since < began {
		w.violated("DeleteSnapshot of %s, which an object names", handle)
	}
}

// has reports whether the object of a manifest exists.
func (o *objects) has(document string) bool {
	objects, err := manifest.Decode([]manifest.File{{Name: "first", Data: []byte(document)}})
	if err != nil {
		return false
	}
	return o.byKey[objects.All[0].Kind.Resource+" "+objects.All[0].Key] != nil
}
