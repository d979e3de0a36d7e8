package groupsnapshot

import (
	"slices"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// step is what a content needs next.
type step string

const (
	stepNothing step = "nothing"
	// stepCut: ask the driver for the group snapshot, until its answer is final.
	stepCut step = "cut"
	// stepUnmark: the group snapshot is recorded; the marker has done its work.
	stepUnmark step = "unmark"
	// stepLook: ask whether a group snapshot and all its members are ready.
	stepLook step = "look"
	// stepDelete: delete the driver's group snapshot with its members.
	stepDelete step = "delete"
	// stepRelease: take the finalizer off.
	stepRelease step = "release"
)

// next decides, from nothing but the content. It follows csi-snapshotter, but
// a group snapshot that exists is asked about with GetVolumeGroupSnapshot, which
// its capability includes: that can make nothing.
func next(content *groupv1.VolumeGroupSnapshotContent) step {
	switch {
	case deletable(content):
		if content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete && handleOf(content) != "" {
			return stepDelete
		}
		return stepRelease
	case handleOf(content) != "" && marked(content):
		return stepUnmark
	case handleOf(content) != "" && ready(content):
		return stepNothing
	case handleOf(content) != "", static(content):
		return stepLook
	case marked(content):
		return stepCut
	case beingDeleted(content), !protected(content):
		return stepNothing // nobody wants it any more, or it could vanish under the call
	}
	return stepCut
}

// deletable tells whether the driver's group snapshot may be deleted. A content
// whose creation is not settled yet may not.
func deletable(content *groupv1.VolumeGroupSnapshotContent) bool {
	if content.DeletionTimestamp == nil {
		return false
	}
	if static(content) && content.Spec.VolumeGroupSnapshotRef.UID == "" {
		return true
	}
	return !marked(content) && beingDeleted(content)
}

func protected(content *groupv1.VolumeGroupSnapshotContent) bool {
	return content.DeletionTimestamp == nil || slices.Contains(content.Finalizers, claim.GroupSnapshotKeys().Finalizer)
}

func marked(content *groupv1.VolumeGroupSnapshotContent) bool {
	_, is := content.Annotations[claim.GroupSnapshotKeys().BeingCreated]
	return is
}

func beingDeleted(content *groupv1.VolumeGroupSnapshotContent) bool {
	_, is := content.Annotations[claim.GroupSnapshotKeys().BeingDeleted]
	return is
}

// static tells whether an administrator made the content for a group snapshot
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

// wanted is the ID that the content is about: recorded, or named by the
// administrator.
func wanted(content *groupv1.VolumeGroupSnapshotContent) string {
	if handle := handleOf(content); handle != "" || !static(content) {
		return handle
	}
	return content.Spec.Source.GroupSnapshotHandles.VolumeGroupSnapshotHandle
}

// members are the IDs of the group's snapshots: recorded, or named by the
// administrator. Contents of API version v1beta1 lost theirs when the field was
// renamed; what the driver makes of a call without them is its answer to give.
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
