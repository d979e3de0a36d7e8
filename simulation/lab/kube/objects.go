package kube

import (
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// put stores an object. One that is being deleted and has no finalizers goes.
func (w *World) put(o object) {
	var err error
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		err = w.server.Drop(o)
	} else {
		err = w.server.Put(o)
	}
	if err != nil {
		w.violate("the world cannot write %s: %v", o.GetName(), err)
	}
}

// change writes a changed copy of an object as it is now, if it exists.
func (w *World) change(o object, change func(object)) {
	current, ok := get[object](w.mirror, resourceOf(o), o.GetNamespace(), o.GetName())
	if !ok || current.GetUID() != o.GetUID() {
		return
	}
	copied, ok := current.DeepCopyObject().(object)
	if !ok {
		return
	}
	change(copied)
	w.put(copied)
}

// remove asks for the deletion of an object.
func (w *World) remove(o object) {
	if err := w.server.Remove(o); err != nil && !apierrors.IsNotFound(err) {
		w.violate("the world cannot delete %s: %v", o.GetName(), err)
	}
}

// drop removes an object with its finalizers.
func (w *World) drop(o object) {
	if err := w.server.Drop(o); err != nil && !apierrors.IsNotFound(err) {
		w.violate("the world cannot remove %s: %v", o.GetName(), err)
	}
}

// touch is a change of an object that concerns no controller.
func (w *World) touch(resource, namespace, name string) {
	if o, ok := get[object](w.mirror, resource, namespace, name); ok {
		w.made++
		w.change(o, annotate("example.com/touched", fmt.Sprint(w.made)))
	}
}

// uid is a new UID.
func (w *World) uid(kind string) types.UID {
	w.made++
	return types.UID(fmt.Sprintf("uid-%s-%d", kind, w.made))
}

func (w *World) meta(kind string) metav1.ObjectMeta {
	uid := w.uid(kind)
	return metav1.ObjectMeta{Namespace: namespace, Name: strings.TrimPrefix(string(uid), "uid-"), UID: uid}
}

// resourceOf is the resource of an object.
func resourceOf(o object) string {
	switch o.(type) {
	case *corev1.PersistentVolumeClaim:
		return claims
	case *corev1.PersistentVolume:
		return volumes
	case *corev1.Pod:
		return pods
	case *storagev1.VolumeAttachment:
		return attachments
	case *snapshotv1.VolumeSnapshot:
		return snapshots
	case *snapshotv1.VolumeSnapshotContent:
		return contents
	case *corev1.ConfigMap:
		return configMaps
	case *coordinationv1.Lease:
		return leases
	case *storagev1.StorageClass:
		return classes
	case *storagev1.VolumeAttributesClass:
		return modifiers
	case *storagev1.CSINode:
		return csiNodes
	case *corev1.Secret:
		return secrets
	}
	return ""
}
