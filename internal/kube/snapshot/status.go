package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// taken is the status of a content whose snapshot exists. What was recorded at
// the first answer stays; a creation time that the driver leaves out is now.
// Only of a snapshot that is looked up, its group is told: those that this
// controller asks for belong to none.
func taken(object *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot, lookedUp bool) map[string]any {
	status := map[string]any{
		"snapshotHandle": snapshot.GetSnapshotId(),
		"readyToUse":     snapshot.GetReadyToUse(),
		"error":          nil,
	}
	old := object.Status
	if old == nil || old.CreationTime == nil {
		status["creationTime"] = content.Taken(snapshot.GetCreationTime(), time.Now()).UnixNano()
	}
	if size := snapshot.GetSizeBytes(); size > 0 && (old == nil || old.RestoreSize == nil) {
		status["restoreSize"] = size
	}
	if group := snapshot.GetGroupSnapshotId(); lookedUp && group != "" && (old == nil || old.VolumeGroupSnapshotHandle == nil) {
		status["volumeGroupSnapshotHandle"] = group
	}
	return status
}

// failed shows a user why a content is not ready, and gives the failure back
// for the queue.
func (c *Controller) failed(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, failure error) (*snapshotv1.VolumeSnapshotContent, error) {
	if ctx.Err() != nil || content.Quiet(failure) {
		return object, failure
	}
	problem := explain(object, failure)
	if status := object.Status; status != nil && status.Error != nil && status.Error.Message != nil {
		problem.Shown = *status.Error.Message
	}
	failure = fmt.Errorf("VolumeSnapshotContent %s: %w", object.Name, failure)
	return c.writer.Show(ctx, object, is(next(object)), problem, c.env.Logger), failure
}

// explain: until there is a snapshot, taking it is what failed.
func explain(object *snapshotv1.VolumeSnapshotContent, failure error) content.Problem {
	if handleOf(object) == "" && !static(object) {
		return content.Problem{Reason: reasonCreation, Message: fmt.Sprintf("Failed to create snapshot: %v", failure)}
	}
	return content.Problem{Reason: reasonCheck, Message: fmt.Sprintf("Failed to check and update snapshot content: %v", failure)}
}
