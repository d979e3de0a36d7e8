package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
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
	repeated := true
	if next(object) == stepPoll {
		object, err = c.writer.Recheck(ctx, object, is(stepPoll))
	} else {
		object, repeated, err = c.writer.Mark(ctx, object, content.Request{Name: request.GetName(), Parameters: request.GetParameters()}, is(stepCut))
	}
	if err != nil {
		return object, err
	}
	if err := c.thaw(object, request); err != nil {
		return c.failed(ctx, object, err)
	}
	if err := c.env.Failpoints.Hit("snapshot/marked"); err != nil {
		return object, err
	}
	snapshot, err := c.create(ctx, object, request)
	if fail := c.env.Failpoints.Hit("snapshot/called"); fail != nil {
		return object, fail
	}
	if err != nil {
		return c.refused(ctx, object, repeated, err)
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

// frozen is what the driver was given for the snapshot before, or has to be given
// according to the class and the flags.
func (c *Controller) frozen(object *snapshotv1.VolumeSnapshotContent) (content.Request, error) {
	if marked(object) || handleOf(object) != "" {
		if request, ok, err := content.Frozen(object.Annotations); ok {
			return request, err
		}
	}
	if object.Spec.VolumeSnapshotClassName == nil {
		return content.Request{}, errors.New("it names no VolumeSnapshotClass")
	}
	class, err := c.parse(object)
	if err != nil {
		return content.Request{}, err
	}
	name, err := c.options.Naming.SnapshotName(object.Spec.VolumeSnapshotRef.UID)
	if err != nil {
		return content.Request{}, err
	}
	if c.options.ExtraMetadata {
		maps.Copy(class.Parameters, names(object).Metadata())
	}
	return content.Request{Name: name, Parameters: class.Parameters}, nil
}

// thaw makes a request what the content says that the driver was given, since
// another process may have marked the content with another one.
func (c *Controller) thaw(object *snapshotv1.VolumeSnapshotContent, request *csi.CreateSnapshotRequest) error {
	frozen, err := c.frozen(object)
	request.Name, request.Parameters = frozen.Name, frozen.Parameters
	return err
}

// request is the same each time, but for the values of the secret.
func (c *Controller) request(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*csi.CreateSnapshotRequest, error) {
	frozen, err := c.frozen(object)
	if err == nil {
		err = c.able(ctx)
	}
	if err != nil {
		return nil, err
	}
	secrets, err := content.Secret(ctx, c.env, c.writer.Keys, object.Annotations)
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotRequest{
		SourceVolumeId: *object.Spec.Source.VolumeHandle, Name: frozen.Name, Parameters: frozen.Parameters, Secrets: secrets,
	}, nil
}

// able reports as an error that the driver takes no snapshots.
func (c *Controller) able(ctx context.Context) error {
	offered, err := c.env.CSI.ControllerCapabilities(ctx)
	if err == nil && !offered.Snapshots {
		err = fmt.Errorf("the driver %s takes no snapshots (it lacks CREATE_DELETE_SNAPSHOT)", c.env.Driver)
	}
	return err
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

// refused records a failed call. When nothing can exist the mark goes, and the
// content may be deleted; else the mark stays, and the same call is repeated.
func (c *Controller) refused(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, repeated bool, failure error) (*snapshotv1.VolumeSnapshotContent, error) {
	if ctx.Err() != nil {
		return object, failure // the process ends: no fault of the driver's
	}
	outcome := lifecycle.AfterFailedCreate(lifecycle.Creation{
		Call: claim.CallSnapshot, Copied: true, Repeated: repeated, Desired: object.DeletionTimestamp == nil,
	}, failure)
	if handleOf(object) == "" && outcome.KeepsIntent() {
		return c.failed(ctx, object, content.Kept(c.writer.Keys, "snapshot", outcome, failure))
	}
	object, err := c.writer.Unmark(ctx, object)
	if err != nil {
		return object, errors.Join(failure, err)
	}
	return c.failed(ctx, object, failure)
}
