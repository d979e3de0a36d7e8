package snapshot

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

func (kind) View(object *snapshotv1.VolumeSnapshotContent) content.View {
	v := content.View{
		Meta: object.ObjectMeta, Spec: object.Spec,
		Driver: object.Spec.Driver, Class: object.Spec.VolumeSnapshotClassName, Policy: object.Spec.DeletionPolicy,
		User: names(object), UID: object.Spec.VolumeSnapshotRef.UID, Volumes: sources(object),
		Static: static(object), Member: member(object), Handle: handleOf(object), Desired: desired(object), Ready: ready(object),
	}
	if status := object.Status; status != nil {
		if status.CreationTime != nil {
			v.Taken = time.Unix(0, *status.CreationTime)
		}
		if status.Error != nil && status.Error.Message != nil {
			v.Error = *status.Error.Message
		}
	}
	return v
}

func names(object *snapshotv1.VolumeSnapshotContent) claim.SnapshotNames {
	ref := object.Spec.VolumeSnapshotRef
	return claim.SnapshotNames{Content: object.Name, Namespace: ref.Namespace, Name: ref.Name}
}

// member reports whether the snapshot belongs to a group: by the annotation, which
// snapshot-controller writes first, or by the status, which stays.
func member(content *snapshotv1.VolumeSnapshotContent) bool {
	_, annotated := content.Annotations[claim.GroupMemberAnnotation]
	return annotated || content.Status != nil && content.Status.VolumeGroupSnapshotHandle != nil
}

// static reports whether an administrator made the content for a snapshot that
// existed already.
func static(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.Spec.Source.SnapshotHandle != nil
}

func ready(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.Status != nil && content.Status.ReadyToUse != nil && *content.Status.ReadyToUse
}

// handleOf is the snapshot's recorded ID, "" if there is none.
func handleOf(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Status == nil || content.Status.SnapshotHandle == nil {
		return ""
	}
	return *content.Status.SnapshotHandle
}

// desired is the ID that the content is about: recorded, or named by the
// administrator.
func desired(content *snapshotv1.VolumeSnapshotContent) string {
	if handle := handleOf(content); handle != "" || !static(content) {
		return handle
	}
	return *content.Spec.Source.SnapshotHandle
}

// sources are the volumes that the content is of.
func sources(content *snapshotv1.VolumeSnapshotContent) []string {
	if content.Spec.Source.VolumeHandle == nil {
		return nil
	}
	return []string{*content.Spec.Source.VolumeHandle}
}
