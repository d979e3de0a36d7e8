package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// cut asks the driver for a content's snapshot: for the first time, again
// after an answer that settled nothing, or to see whether it is ready (CSI
// wants the same call for all three). Whether to ask is decided on the state in
// the API server: asked for a content that a stale cache still shows, the
// driver would take a snapshot that nobody knows.
func (c *Controller) cut(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshotContent, error) {
	request, err := c.request(ctx, object)
	if err != nil {
		return c.failed(ctx, object, err)
	}
	if next(object) == stepPoll {
		object, err = c.writer.Recheck(ctx, object, is(stepPoll))
	} else {
		object, err = c.writer.Mark(ctx, object, is(stepCut))
	}
	if err != nil {
		return object, err
	}
	if err := c.env.Failpoints.Hit("snapshot/marked"); err != nil {
		return object, err
	}
	snapshot, err := c.create(ctx, object, request)
	if fail := c.env.Failpoints.Hit("snapshot/called"); fail != nil {
		return object, fail
	}
	if err != nil {
		return c.refused(ctx, object, err)
	}
	object, err = c.writer.Status(ctx, object, is(next(object)), taken(object, snapshot, false))
	if err != nil {
		return object, err
	}
	if err := c.env.Failpoints.Hit("snapshot/status"); err != nil {
		return object, err
	}
	return c.writer.Unmark(ctx, object)
}

// is makes the condition that a content still needs a step.
func is(wanted step) func(*snapshotv1.VolumeSnapshotContent) bool {
	return func(object *snapshotv1.VolumeSnapshotContent) bool { return next(object) == wanted }
}

// request is made of the content and its class alone, so that it is the same
// each time.
func (c *Controller) request(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*csi.CreateSnapshotRequest, error) {
	if object.Spec.VolumeSnapshotClassName == nil {
		return nil, errors.New("it names no VolumeSnapshotClass")
	}
	class, err := c.parse(object)
	if err != nil {
		return nil, err
	}
	name, err := c.options.Naming.SnapshotName(object.Spec.VolumeSnapshotRef.UID)
	if err != nil {
		return nil, err
	}
	offered, err := c.env.CSI.ControllerCapabilities(ctx)
	if err == nil && !offered.Snapshots {
		err = fmt.Errorf("the driver %s takes no snapshots (it lacks CREATE_DELETE_SNAPSHOT)", c.env.Driver)
	}
	if err != nil {
		return nil, err
	}
	secrets, err := content.Secret(ctx, c.env, c.writer.Keys, object.Annotations)
	if err != nil {
		return nil, err
	}
	if c.options.ExtraMetadata {
		for key, value := range names(object).Metadata() {
			class.Parameters[key] = value
		}
	}
	return &csi.CreateSnapshotRequest{
		SourceVolumeId: *object.Spec.Source.VolumeHandle, Name: name, Parameters: class.Parameters, Secrets: secrets,
	}, nil
}

// create makes the call. An answer that cannot be right settles nothing: the
// snapshot may exist, and nobody knows which it is.
func (c *Controller) create(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, request *csi.CreateSnapshotRequest) (*csi.Snapshot, error) {
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	snapshot, err := c.env.CSI.CreateSnapshot(bounded, request)
	if err == nil {
		err = check(object, snapshot)
	}
	return snapshot, err
}

// check tells what of an answer cannot be right.
func check(object *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot) error {
	id, source := snapshot.GetSnapshotId(), object.Spec.Source.VolumeHandle
	switch {
	case id == "":
		return errors.New("the driver answered without a snapshot_id")
	case wanted(object) != "" && wanted(object) != id:
		return fmt.Errorf("the driver answered with snapshot %q; this content is about %q", id, wanted(object))
	case source != nil && snapshot.GetSourceVolumeId() != "" && snapshot.GetSourceVolumeId() != *source:
		return fmt.Errorf("the driver answered with snapshot %q of volume %q; asked for was one of %q", id, snapshot.GetSourceVolumeId(), *source)
	case snapshot.GetSizeBytes() < 0:
		return fmt.Errorf("the driver answered that snapshot %q has %d bytes", id, snapshot.GetSizeBytes())
	}
	return nil
}

// refused records a failed call. After a final answer there is no snapshot to
// wait for, and the content may be deleted; after any other the marker stays,
// and the same call is made until the answer is final.
func (c *Controller) refused(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, failure error) (*snapshotv1.VolumeSnapshotContent, error) {
	if ctx.Err() != nil {
		return object, failure // the process ends: no fault of the driver's
	}
	if claim.Classify(claim.CallSnapshot, failure) == claim.OutcomeUncertain {
		return c.failed(ctx, object, fmt.Errorf("%w (the snapshot may still be taken: the same call is repeated)", failure))
	}
	object, err := c.writer.Unmark(ctx, object)
	if err != nil {
		return object, errors.Join(failure, err)
	}
	return c.failed(ctx, object, failure)
}
