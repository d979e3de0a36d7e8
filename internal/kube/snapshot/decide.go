package snapshot

import (
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// step is what a content needs next.
type step string

const (
	stepNothing step = "nothing"
	// stepCut: ask the driver for the snapshot, until it gives a final answer.
	stepCut step = "cut"
	// stepUnmark: the snapshot is recorded; the marker has done its work.
	stepUnmark step = "unmark"
	// stepPoll: ask for the same snapshot again, to see whether it is ready.
	stepPoll step = "poll"
	// stepLook: ask about a snapshot that this content's driver call did not
	// make: one that an administrator names, or a member of a group.
	stepLook step = "look"
	// stepAwait: a group's member, whose snapshot snapshot-controller fills in.
	stepAwait step = "await"
	// stepDelete: delete the driver's snapshot.
	stepDelete step = "delete"
	// stepRelease: take the finalizer off.
	stepRelease step = "release"
)

// next decides, from nothing but the content. It follows csi-snapshotter's
// order, except where a comment says so.
func next(content *snapshotv1.VolumeSnapshotContent) step {
	switch {
	case deletable(content):
		if content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete && handleOf(content) != "" && !member(content) {
			return stepDelete
		}
		// The snapshots of a group are deleted with the group (CSI spec 1.13,
		// DeleteSnapshot: "Snapshot is part of a group").
		return stepRelease
	case handleOf(content) != "":
		return known(content)
	case static(content):
		return stepLook
	case member(content):
		return stepAwait
	case marked(content):
		return stepCut
	case beingDeleted(content), !protected(content):
		// Nobody wants it any more, or it could vanish under the call:
		// csi-snapshotter would take the snapshot nevertheless.
		return stepNothing
	}
	return stepCut
}

func known(content *snapshotv1.VolumeSnapshotContent) step {
	switch {
	case marked(content):
		return stepUnmark
	case ready(content):
		return stepNothing
	case static(content), member(content):
		return stepLook
	}
	return stepPoll
}

// deletable tells whether the driver's snapshot may be deleted. A content whose
// creation is not settled yet may not: the snapshot could appear afterwards.
func deletable(content *snapshotv1.VolumeSnapshotContent) bool {
	if content.DeletionTimestamp == nil {
		return false
	}
	if static(content) && content.Spec.VolumeSnapshotRef.UID == "" {
		return true
	}
	return !marked(content) && beingDeleted(content)
}

// protected: a content that is being deleted and has no finalizer of ours can
// get none any more.
func protected(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.DeletionTimestamp == nil || slices.Contains(content.Finalizers, claim.VolumeSnapshotKeys().Finalizer)
}

func marked(content *snapshotv1.VolumeSnapshotContent) bool {
	_, is := content.Annotations[claim.VolumeSnapshotKeys().BeingCreated]
	return is
}

func beingDeleted(content *snapshotv1.VolumeSnapshotContent) bool {
	_, is := content.Annotations[claim.VolumeSnapshotKeys().BeingDeleted]
	return is
}

// member tells whether the snapshot belongs to a group, by what
// snapshot-controller writes first and by what stays.
func member(content *snapshotv1.VolumeSnapshotContent) bool {
	_, annotated := content.Annotations[claim.GroupMemberAnnotation]
	return annotated || content.Status != nil && content.Status.VolumeGroupSnapshotHandle != nil
}

// static tells whether an administrator made the content for a snapshot that
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

// wanted is the ID that the content is about: recorded, or named by the
// administrator.
func wanted(content *snapshotv1.VolumeSnapshotContent) string {
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
