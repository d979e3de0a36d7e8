// Package snapshot serves a driver's VolumeSnapshotContents, as csi-snapshotter
// does: it asks the driver for the snapshots that snapshot-controller requests,
// reports when they are ready, and deletes them. It never sees a VolumeSnapshot.
//
// The content is the intent: it is marked before the call that creates a snapshot, and it
// cannot be deleted before the answer is recorded on it. So each snapshot has a content
// that names it, also after a crash at any time.
package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Options are those of package content.
type Options = content.Options

// Controller is the snapshot controller of one driver.
type Controller = content.Controller[*snapshotv1.VolumeSnapshotContent]

// kind is VolumeSnapshotContent.
type kind struct {
	env     *cluster.Env
	classes *cluster.Store[*snapshotv1.VolumeSnapshotClass]
}

// New returns the controller and registers its caches. It writes and calls nothing before
// Run.
func New(env *cluster.Env, o Options) *Controller {
	return content.New(env, traits(), kind{env, env.Set.SnapshotClasses()},
		env.Set.Contents(), env.Snapshots.SnapshotV1().VolumeSnapshotContents(), o)
}

func traits() content.Traits {
	return content.Traits{
		Kind: "VolumeSnapshotContent", ClassKind: "VolumeSnapshotClass", Noun: "snapshot", Failpoints: "snapshot",
		Queue: "csi-snapshotter-content", Operation: metrics.KindSnapshot, Deletion: metrics.KindDeleteSnapshot, Group: snapshotv1.SchemeGroupVersion,
		Resources:      []string{"volumesnapshotcontents", "volumesnapshotclasses"},
		Keys:           claim.VolumeSnapshotKeys(),
		ReasonCreation: "SnapshotCreationFailed", ReasonCheck: "SnapshotContentCheckandUpdateFailed", ReasonDelete: "SnapshotDeleteError",
		HandleField: "snapshotHandle",
		Cleared:     []string{"snapshotHandle", "readyToUse", "creationTime", "restoreSize"},
		ParseClass:  claim.ParseSnapshotClass, Name: claim.Naming.SnapshotName, Metadata: claim.SnapshotNames.Metadata,
	}
}

func (k kind) Class(name string) (driver string, parameters map[string]string, found bool) {
	class, found := k.classes.Get(name)
	if !found {
		return "", nil, false
	}
	return class.Driver, class.Parameters, true
}

func (k kind) Able(ctx context.Context) error {
	offered, err := k.env.CSI.ControllerCapabilities(ctx)
	if err == nil && !offered.Snapshots {
		err = fmt.Errorf("the driver %s does not support snapshots (it lacks CREATE_DELETE_SNAPSHOT)", k.env.Driver)
	}
	return err
}

func (k kind) Create(
	ctx context.Context, object *snapshotv1.VolumeSnapshotContent, request content.Request, secrets map[string]string,
) (content.Answer, error) {
	snapshot, err := k.env.CSI.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{
		SourceVolumeId: *object.Spec.Source.VolumeHandle, Name: request.Name, Parameters: request.Parameters, Secrets: secrets,
	})
	if err == nil {
		err = lifecycle.CheckSnapshotAnswer(object, snapshot)
	}
	if err != nil {
		return content.Answer{}, err
	}
	return content.Answer{Status: taken(object, snapshot, false), Topology: snapshot.GetAccessibleTopology()}, nil
}

func (k kind) Delete(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, secrets map[string]string) error {
	return k.env.CSI.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: handleOf(object), Secrets: secrets})
}

// taken returns the status of a content whose snapshot exists. Recorded fields stay. If
// the driver sends no creation time, it is the current time. Only an inspected snapshot has a group: those that this controller creates belong to none.
func taken(object *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot, inspected bool) map[string]any {
	status := map[string]any{
		"snapshotHandle": snapshot.GetSnapshotId(),
		"readyToUse":     snapshot.GetReadyToUse(),
		"error":          nil,
	}
	old := object.Status
	if old == nil || old.CreationTime == nil {
		status["creationTime"] = lifecycle.SnapshotTime(snapshot.GetCreationTime(), time.Now()).UnixNano()
	}
	if size := snapshot.GetSizeBytes(); size > 0 && (old == nil || old.RestoreSize == nil) {
		status["restoreSize"] = size
	}
	if group := snapshot.GetGroupSnapshotId(); inspected && group != "" && (old == nil || old.VolumeGroupSnapshotHandle == nil) {
		status["volumeGroupSnapshotHandle"] = group
	}
	return status
}
