package lifecycle

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// SnapshotHandle is the recorded ID of a content's snapshot, "" if there is none.
func SnapshotHandle(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Status == nil || content.Status.SnapshotHandle == nil {
		return ""
	}
	return *content.Status.SnapshotHandle
}

// NamedSnapshot is the ID that a content is about: recorded, or named by the
// administrator; "" if neither.
func NamedSnapshot(content *snapshotv1.VolumeSnapshotContent) string {
	if handle := SnapshotHandle(content); handle != "" || content.Spec.Source.SnapshotHandle == nil {
		return handle
	}
	return *content.Spec.Source.SnapshotHandle
}

// SnapshotContent is what FindSnapshotTwin reads of a VolumeSnapshotContent or a
// VolumeGroupSnapshotContent.
type SnapshotContent struct {
	Name, Driver string
	// Handle is the ID that the content is about: recorded, or named by the
	// administrator; "" if neither.
	Handle string
	// Deletes reports that the driver's snapshot is due to be deleted with the content.
	Deletes bool
}

// FindSnapshotTwin finds another content of the same driver's snapshot, which keeps
// the snapshot from being deleted; "" if there is none. One that deletes the snapshot
// too keeps nothing: either may come first. All contents must be of one kind, and of
// drivers that can mean the same snapshot by the same ID.
func FindSnapshotTwin(contents iter.Seq[SnapshotContent], content SnapshotContent) string {
	for other := range contents {
		same := other.Driver == content.Driver && other.Handle == content.Handle
		if same && !other.Deletes && other.Name != content.Name {
			return other.Name
		}
	}
	return ""
}

// CheckNewSnapshot returns an error if the snapshot of an answer to a creation is the
// one of another content: two names must not lead to one snapshot. content has the ID
// of the answer. Also a content that is being deleted has its snapshot until it is gone.
// After such an answer it is unknown whether the driver has created a snapshot.
func CheckNewSnapshot(contents iter.Seq[SnapshotContent], content SnapshotContent) error {
	for other := range contents {
		if other.Driver == content.Driver && other.Handle == content.Handle && other.Name != content.Name {
			return fmt.Errorf("the driver answered with %q, which is the snapshot of content %q; "+
				"two contents of one snapshot are made by names that are cut too short or by an import of the snapshot",
				content.Handle, other.Name)
		}
	}
	return nil
}

// CheckSnapshotAnswer returns what of a driver's answer about a content's snapshot
// cannot be right. After CreateSnapshot such an answer leaves open what exists.
func CheckSnapshotAnswer(content *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot) error {
	id, source, named := snapshot.GetSnapshotId(), content.Spec.Source.VolumeHandle, NamedSnapshot(content)
	switch {
	case id == "":
		return errors.New("the driver answered without a snapshot_id")
	case named != "" && named != id:
		return fmt.Errorf("the driver answered with snapshot %q; this content is about %q", id, named)
	case source != nil && snapshot.GetSourceVolumeId() != "" && snapshot.GetSourceVolumeId() != *source:
		return fmt.Errorf("the driver answered with snapshot %q of volume %q; asked for was one of %q",
			id, snapshot.GetSourceVolumeId(), *source)
	case snapshot.GetSizeBytes() < 0:
		return fmt.Errorf("the driver answered that snapshot %q has %d bytes", id, snapshot.GetSizeBytes())
	}
	return nil
}

// SnapshotTime is the creation time of a snapshot by its driver's answer. A driver
// that leaves it out has just created the snapshot; the beginning of 1970 is what an
// unset time becomes.
func SnapshotTime(answered *timestamppb.Timestamp, now time.Time) time.Time {
	if !answered.IsValid() || answered.AsTime().Unix() <= 0 {
		return now
	}
	return answered.AsTime()
}
