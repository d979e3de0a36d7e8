package volumes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// index finds objects without reading all of them: the pods that use a claim, the
// PersistentVolumes that have a handle or are free, the snapshots of a claim that are
// being created. It follows the store, and reads all earlier changes before it answers.
type index struct {
	store *store.Store

	mu    sync.Mutex
	watch *store.Watch
	facts map[string][]string            // the facts of each object, by resource/key
	by    map[string]map[string]struct{} // the keys of the objects, by fact
}

// The facts.
func podUses(claimKey string) string         { return "pod uses " + claimKey }
func consumes(claimKey string) string        { return "pod awaits " + claimKey }
func hasHandle(driver, handle string) string { return "handle " + claim.UniqueName(driver, handle) }
func hasSnapshot(driver, id string) string   { return "snapshot " + claim.UniqueName(driver, id) }
func isFree(class string) string             { return "free " + class }
func snapshotsOf(claimKey string) string     { return "snapshotsOf " + claimKey }

// find lists the keys of the objects that have a fact, sorted.
func (i *index) find(fact string) ([]string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.catchUp(); err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(i.by[fact])), nil
}

// catchUp reads the changes that were committed before. After an error, the index is
// built again: one that lacks a pod would report its claim as unused.
func (i *index) catchUp() error { return i.keep(i.follow()) }

func (i *index) keep(err error) error {
	if err != nil {
		i.watch = nil
	}
	return err
}

func (i *index) follow() error {
	if i.watch == nil {
		return i.build()
	}
	for {
		changes, err := i.watch.Poll()
		switch {
		case errors.Is(err, store.ErrExpired):
			return i.build()
		case err != nil:
			return fmt.Errorf("follow the store: %w", err)
		case len(changes) == 0:
			return nil
		}
		for _, change := range changes {
			if !indexed(change.Kind.Resource) {
				continue
			}
			object, err := change.Object()
			if err != nil {
				return err
			}
			if change.Deleted {
				object = nil
			}
			i.note(dependency(change.Kind.Resource, change.Key), object)
		}
	}
}

func indexed(resource string) bool {
	return slices.Contains([]string{podResource, volumeResource, snapshotResource, contentResource}, resource)
}

func (i *index) build() error {
	i.facts, i.by = map[string][]string{}, map[string]map[string]struct{}{}
	return i.store.View(func(tx *store.Tx) error {
		i.watch = i.store.Watch(tx.Version())
		for _, kind := range store.Kinds() {
			if !indexed(kind.Resource) {
				continue
			}
			objects, err := tx.Objects(kind).All()
			if err != nil {
				return err
			}
			for _, object := range objects {
				i.note(dependency(kind.Resource, store.KeyOf(object)), object)
			}
		}
		return nil
	})
}

// note replaces the facts of an object; nil has none.
func (i *index) note(name string, object store.Object) {
	_, key, _ := splitKey(name)
	for _, fact := range i.facts[name] {
		if delete(i.by[fact], key); len(i.by[fact]) == 0 {
			delete(i.by, fact)
		}
	}
	facts := factsOf(object)
	for _, fact := range facts {
		if i.by[fact] == nil {
			i.by[fact] = map[string]struct{}{}
		}
		i.by[fact][key] = struct{}{}
	}
	if len(facts) == 0 {
		delete(i.facts, name)
		return
	}
	i.facts[name] = facts
}

func factsOf(object store.Object) (facts []string) {
	switch object := object.(type) {
	case *corev1.Pod:
		if finished(object) {
			return nil
		}
		for _, key := range ClaimsOf(object) {
			facts = append(facts, podUses(key))
			if object.DeletionTimestamp == nil {
				facts = append(facts, consumes(key))
			}
		}
	case *corev1.PersistentVolume:
		if source := object.Spec.CSI; source != nil {
			facts = append(facts, hasHandle(source.Driver, source.VolumeHandle))
		}
		unbound := []corev1.PersistentVolumePhase{"", corev1.VolumePending, corev1.VolumeAvailable}
		if object.DeletionTimestamp == nil && slices.Contains(unbound, object.Status.Phase) {
			facts = append(facts, isFree(object.Spec.StorageClassName))
		}
	case *snapshotv1.VolumeSnapshotContent:
		if handle := lifecycle.SnapshotHandle(object); handle != "" {
			facts = append(facts, hasSnapshot(object.Spec.Driver, handle))
		} else if named := object.Spec.Source.SnapshotHandle; named != nil {
			facts = append(facts, hasSnapshot(object.Spec.Driver, *named))
		}
	case *snapshotv1.VolumeSnapshot:
		if name := object.Spec.Source.PersistentVolumeClaimName; name != nil && !isReady(object) {
			facts = append(facts, snapshotsOf(store.Key(object.Namespace, *name)))
		}
	}
	return facts
}

// ClaimsOf lists the keys of the claims that a pod uses, those of its generic
// ephemeral volumes included.
func ClaimsOf(pod *corev1.Pod) (keys []string) {
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.PersistentVolumeClaim != nil:
			keys = append(keys, store.Key(pod.Namespace, volume.PersistentVolumeClaim.ClaimName))
		case volume.Ephemeral != nil:
			keys = append(keys, store.Key(pod.Namespace, claim.EphemeralClaimName(pod.Name, volume.Name)))
		}
	}
	return keys
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isReady(snapshot *snapshotv1.VolumeSnapshot) bool {
	return snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
}

// splitKey splits resource/key.
func splitKey(name string) (resource, key string, found bool) { return strings.Cut(name, "/") }
