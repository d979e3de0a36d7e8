package groupsnapshot

import (
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// taken is the status of a content whose group snapshot exists. A group is
// ready when all its members are, regardless of the driver's ready_to_use; until
// then each answer refreshes the members.
func taken(object *groupv1.VolumeGroupSnapshotContent, group *csi.VolumeGroupSnapshot) map[string]any {
	now := time.Now()
	infos := infosOf(object, group, now)
	allReady := group.GetReadyToUse() && !slices.ContainsFunc(infos, func(i groupv1.VolumeSnapshotInfo) bool { return !*i.ReadyToUse })
	status := map[string]any{
		"volumeGroupSnapshotHandle": group.GetGroupSnapshotId(),
		"readyToUse":                allReady,
		"volumeSnapshotInfoList":    infos,
		"error":                     nil,
	}
	if object.Status == nil || object.Status.CreationTime == nil {
		status["creationTime"] = metav1.NewTime(lifecycle.SnapshotTime(group.GetCreationTime(), now))
	}
	return status
}

// infosOf returns the members, in the order in which they were recorded or
// asked for: a driver may answer in any.
func infosOf(
	object *groupv1.VolumeGroupSnapshotContent, group *csi.VolumeGroupSnapshot, now time.Time,
) []groupv1.VolumeSnapshotInfo {
	infos := make([]groupv1.VolumeSnapshotInfo, 0, len(group.GetSnapshots()))
	for _, snapshot := range group.GetSnapshots() {
		infos = append(infos, infoOf(recorded(object, snapshot.GetSnapshotId()), group, snapshot, now))
	}
	position := func(info groupv1.VolumeSnapshotInfo) int {
		if known := members(object); len(known) > 0 {
			return slices.Index(known, info.SnapshotHandle)
		}
		return slices.Index(object.Spec.Source.VolumeHandles, info.VolumeHandle)
	}
	slices.SortStableFunc(infos, func(a, b groupv1.VolumeSnapshotInfo) int { return position(a) - position(b) })
	return infos
}

func recorded(object *groupv1.VolumeGroupSnapshotContent, id string) groupv1.VolumeSnapshotInfo {
	if object.Status != nil {
		for _, info := range object.Status.VolumeSnapshotInfoList {
			if info.SnapshotHandle == id {
				return info
			}
		}
	}
	return groupv1.VolumeSnapshotInfo{}
}

// infoOf returns the status of a member. A member without its own time has the group's.
func infoOf(
	old groupv1.VolumeSnapshotInfo, group *csi.VolumeGroupSnapshot, snapshot *csi.Snapshot, now time.Time,
) groupv1.VolumeSnapshotInfo {
	ready := snapshot.GetReadyToUse()
	info := groupv1.VolumeSnapshotInfo{
		VolumeHandle: snapshot.GetSourceVolumeId(), SnapshotHandle: snapshot.GetSnapshotId(),
		CreationTime: old.CreationTime, ReadyToUse: &ready, RestoreSize: old.RestoreSize,
	}
	if info.CreationTime == nil {
		at := lifecycle.SnapshotTime(snapshot.GetCreationTime(), lifecycle.SnapshotTime(group.GetCreationTime(), now)).UnixNano()
		info.CreationTime = &at
	}
	if size := snapshot.GetSizeBytes(); size > 0 && info.RestoreSize == nil {
		info.RestoreSize = &size
	}
	return info
}
