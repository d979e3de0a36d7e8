package content

import (
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

// Step is the next step for a content.
type Step string

// The steps of a content.
const (
	// StepNothing: nothing until an object changes.
	StepNothing Step = "nothing"
	// StepCreate: ask the driver for the snapshot, until its answer is final.
	StepCreate Step = "create"
	// StepUnmark: the snapshot is recorded; remove the mark.
	StepUnmark Step = "unmark"
	// StepPoll: repeat the call that created the snapshot, to learn whether it is ready.
	StepPoll Step = "poll"
	// StepInspect: ask for a snapshot by its ID: one that an administrator names, a
	// member of a group, or a group.
	StepInspect Step = "inspect"
	// StepAwait: a member of a group, whose snapshot snapshot-controller fills in.
	StepAwait Step = "await"
	// StepDelete: delete the driver's snapshot, of a group with its members.
	StepDelete Step = "delete"
	// StepRelease: remove the finalizer.
	StepRelease Step = "release"
)

// Next decides from nothing but the content. It follows csi-snapshotter's order,
// except where a comment says so.
func (t Traits) Next(v View) Step {
	switch {
	case t.deletable(v):
		if v.Policy == snapshotv1.VolumeSnapshotContentDelete && v.Handle != "" && !v.Member {
			return StepDelete
		}
		// The snapshots of a group are deleted with the group (CSI spec 1.13,
		// DeleteSnapshot: "Snapshot is part of a group").
		return StepRelease
	case v.Handle != "":
		return t.recorded(v)
	case v.Static:
		return StepInspect
	case v.Member:
		return StepAwait
	case t.marked(v):
		return StepCreate
	case t.beingDeleted(v), !t.protected(v):
		// The user deleted it, or it could vanish during the call: csi-snapshotter
		// would take the snapshot nevertheless.
		return StepNothing
	}
	return StepCreate
}

func (t Traits) recorded(v View) Step {
	switch {
	case t.marked(v):
		return StepUnmark
	case v.Ready:
		return StepNothing
	case v.Static, v.Member, t.Inspected:
		return StepInspect
	}
	return StepPoll
}

// deletable reports whether the driver's snapshot may be deleted. While the
// outcome of its creation is unknown it may not: it could appear afterwards.
func (t Traits) deletable(v View) bool {
	if v.Meta.DeletionTimestamp == nil {
		return false
	}
	if v.Static && v.UID == "" {
		return true
	}
	return !t.marked(v) && t.beingDeleted(v)
}

// protected reports whether the content cannot vanish. One that is being deleted
// without the finalizer can get none any more.
func (t Traits) protected(v View) bool {
	return v.Meta.DeletionTimestamp == nil || slices.Contains(v.Meta.Finalizers, t.Keys.Finalizer)
}

func (t Traits) marked(v View) bool {
	_, ok := v.Meta.Annotations[t.Keys.BeingCreated]
	return ok
}

func (t Traits) beingDeleted(v View) bool {
	_, ok := v.Meta.Annotations[t.Keys.BeingDeleted]
	return ok
}
