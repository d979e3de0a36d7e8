package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// Resources of the API.
const (
	claims      = "persistentvolumeclaims"
	volumes     = "persistentvolumes"
	pods        = "pods"
	attachments = "volumeattachments"
	classes     = "storageclasses"
	modifiers   = "volumeattributesclasses"
	snapshots   = "volumesnapshots"
	contents    = "volumesnapshotcontents"
	configMaps  = "configmaps"
	secrets     = "secrets"
	leases      = "leases"
	csiNodes    = "csinodes"
)

// object is an object of the API.
type object interface {
	metav1.Object
	runtime.Object
}

// mirror has the API server's objects with their types. It is always current.
type mirror struct {
	mu      sync.Mutex
	objects map[string]map[string]object // by resource, by namespace/name
	// since is when an object became what it is, as the number of the step.
	version uint64
}

func newMirror() *mirror { return &mirror{objects: map[string]map[string]object{}} }

// kindOf returns an empty object of a resource; nil for a resource that the world does not
// read.
func kindOf(resource string) object {
	switch resource {
	case claims:
		return &corev1.PersistentVolumeClaim{}
	case volumes:
		return &corev1.PersistentVolume{}
	case pods:
		return &corev1.Pod{}
	case attachments:
		return &storagev1.VolumeAttachment{}
	case classes:
		return &storagev1.StorageClass{}
	case modifiers:
		return &storagev1.VolumeAttributesClass{}
	case snapshots:
		return &snapshotv1.VolumeSnapshot{}
	case contents:
		return &snapshotv1.VolumeSnapshotContent{}
	case configMaps:
		return &corev1.ConfigMap{}
	case secrets:
		return &corev1.Secret{}
	case leases:
		return &coordinationv1.Lease{}
	case csiNodes:
		return &storagev1.CSINode{}
	}
	return nil
}

// observe takes a change over.
func (m *mirror) observe(c apiserver.Change) error {
	typed := kindOf(c.Resource)
	if typed == nil {
		return nil
	}
	if err := json.Unmarshal(c.Text, typed); err != nil {
		return fmt.Errorf("decode %s: %w", c.Resource, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.version++
	if m.objects[c.Resource] == nil {
		m.objects[c.Resource] = map[string]object{}
	}
	key := typed.GetNamespace() + "/" + typed.GetName()
	if c.Event == "DELETED" {
		delete(m.objects[c.Resource], key)
		return nil
	}
	m.objects[c.Resource][key] = typed
	return nil
}

// all returns the objects of a resource, sorted by namespace and name. They must not be
// changed.
func all[T object](m *mirror, resource string) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make([]T, 0, len(m.objects[resource]))
	for _, key := range slices.Sorted(maps.Keys(m.objects[resource])) {
		if typed, ok := m.objects[resource][key].(T); ok {
			found = append(found, typed)
		}
	}
	return found
}

// get returns an object; ok is false if there is none.
func get[T object](m *mirror, resource, namespace, name string) (found T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok = m.objects[resource][namespace+"/"+name].(T)
	return found, ok
}
