package groupsnapshot

import (
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

func (kind) View(object *groupv1.VolumeGroupSnapshotContent) content.View {
	v := content.View{
		Meta: object.ObjectMeta, Spec: object.Spec,
		Driver: object.Spec.Driver, Class: object.Spec.VolumeGroupSnapshotClassName, Policy: object.Spec.DeletionPolicy,
		User: names(object), UID: object.Spec.VolumeGroupSnapshotRef.UID, Volumes: object.Spec.Source.VolumeHandles,
		Static: static(object), Handle: handleOf(object), Desired: desired(object), Ready: ready(object),
	}
	if status := object.Status; status != nil {
		if status.CreationTime != nil {
			v.Taken = status.CreationTime.Time
		}
		if status.Error != nil && status.Error.Message != nil {
			v.Error = *status.Error.Message
		}
	}
	return v
}

func names(object *groupv1.VolumeGroupSnapshotContent) claim.SnapshotNames {
	ref := object.Spec.VolumeGroupSnapshotRef
	return claim.SnapshotNames{Content: object.Name, Namespace: ref.Namespace, Name: ref.Name}
}

// static reports whether an administrator made the content for a group snapshot
// that existed already.
func static(content *groupv1.VolumeGroupSnapshotContent) bool {
	return content.Spec.Source.GroupSnapshotHandles != nil
}

func ready(content *groupv1.VolumeGroupSnapshotContent) bool {
	return content.Status != nil && content.Status.ReadyToUse != nil && *content.Status.ReadyToUse
}

// handleOf is the group snapshot's recorded ID, "" if there is none.
func handleOf(content *groupv1.VolumeGroupSnapshotContent) string {
	if content.Status == nil || content.Status.VolumeGroupSnapshotHandle == nil {
		return ""
	}
	return *content.Status.VolumeGroupSnapshotHandle
}

// desired is the ID that the content is about: recorded, or named by the
// administrator.
func desired(content *groupv1.VolumeGroupSnapshotContent) string {
	if handle := handleOf(content); handle != "" || !static(content) {
		return handle
	}
	return content.Spec.Source.GroupSnapshotHandles.VolumeGroupSnapshotHandle
}

// members are the IDs of the group's snapshots: recorded, or named by the
// administrator. Contents of API version v1beta1 lost theirs when the field was
// renamed; the driver decides whether it accepts a call without them.
func members(content *groupv1.VolumeGroupSnapshotContent) []string {
	var ids []string
	if content.Status != nil {
		for _, info := range content.Status.VolumeSnapshotInfoList {
			ids = append(ids, info.SnapshotHandle)
		}
	}
	if len(ids) == 0 && static(content) {
		return content.Spec.Source.GroupSnapshotHandles.VolumeSnapshotHandles
	}
	return ids
}
