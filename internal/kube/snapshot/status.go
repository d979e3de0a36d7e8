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

// failed shows a user why a content is not ready, in its status and in an
// event, and gives the failure back for the queue.
func (c *Controller) failed(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, failure error) (*snapshotv1.VolumeSnapshotContent, error) {
	if ctx.Err() != nil || content.Quiet(failure) {
		return object, failure
	}
	reason, message := explain(object, failure)
	failure = fmt.Errorf("VolumeSnapshotContent %s: %w", object.Name, failure)
	if shown(object, message) {
		return object, failure
	}
	c.writer.Warn(object, reason, message)
	current := next(object)
	written, err := c.writer.Status(ctx, object, is(current), content.Failure(message))
	if err != nil && !content.Quiet(err) {
		c.env.Logger.WarnContext(ctx, "a failure could not be shown", "content", object.Name, "error", err)
	}
	return written, failure
}

// explain: until there is a snapshot, taking it is what failed.
func explain(object *snapshotv1.VolumeSnapshotContent, failure error) (reason, message string) {
	if handleOf(object) == "" && !static(object) {
		return reasonCreation, fmt.Sprintf("Failed to create snapshot: %v", failure)
	}
	return reasonCheck, fmt.Sprintf("Failed to check and update snapshot content: %v", failure)
}

// shown tells whether the status says so already.
func shown(object *snapshotv1.VolumeSnapshotContent, message string) bool {
	status := object.Status
	return status != nil && status.Error != nil && status.Error.Message != nil && *status.Error.Message == message
}
