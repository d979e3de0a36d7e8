package groupsnapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// cut asks the driver for a content's group snapshot, for the first time or
// again after an answer that settled nothing.
func (c *Controller) cut(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*groupv1.VolumeGroupSnapshotContent, error) {
	request, err := c.request(ctx, object)
	if err != nil {
		return c.failed(ctx, object, err)
	}
	frozen := content.Request{Name: request.GetName(), Parameters: request.GetParameters()}
	object, repeated, err := c.writer.Mark(ctx, object, frozen, is(stepCut))
	if err != nil {
		return object, err
	}
	if err := c.thaw(object, request); err != nil {
		return c.failed(ctx, object, err)
	}
	if err := c.env.Failpoints.Hit("groupsnapshot/marked"); err != nil {
		return object, err
	}
	group, err := c.create(ctx, object, request)
	if fail := c.env.Failpoints.Hit("groupsnapshot/called"); fail != nil {
		return object, fail
	}
	if err != nil {
		return c.refused(ctx, object, repeated, err)
	}
	object, err = c.writer.Status(ctx, object, is(stepCut), taken(object, group))
	if err != nil {
		return object, err
	}
	if err := c.env.Failpoints.Hit("groupsnapshot/status"); err != nil {
		return object, err
	}
	return c.writer.Unmark(ctx, object)
}

// is makes the condition that a content still needs a step.
func is(wanted step) func(*groupv1.VolumeGroupSnapshotContent) bool {
	return func(object *groupv1.VolumeGroupSnapshotContent) bool { return next(object) == wanted }
}

// frozen is what the driver was given for the group snapshot before, or has to be
// given according to the class and the flags.
func (c *Controller) frozen(object *groupv1.VolumeGroupSnapshotContent) (content.Request, error) {
	if marked(object) {
		if request, ok, err := content.Frozen(object.Annotations); ok {
			return request, err
		}
	}
	if object.Spec.VolumeGroupSnapshotClassName == nil {
		return content.Request{}, errors.New("it names no VolumeGroupSnapshotClass")
	}
	class, err := c.parse(object)
	if err != nil {
		return content.Request{}, err
	}
	name, err := c.options.Naming.GroupSnapshotName(object.Spec.VolumeGroupSnapshotRef.UID)
	if err != nil {
		return content.Request{}, err
	}
	if c.options.ExtraMetadata {
		maps.Copy(class.Parameters, names(object).GroupMetadata())
	}
	return content.Request{Name: name, Parameters: class.Parameters}, nil
}

// thaw makes a request what the content says that the driver was given, since
// another process may have marked the content with another one.
func (c *Controller) thaw(object *groupv1.VolumeGroupSnapshotContent, request *csi.CreateVolumeGroupSnapshotRequest) error {
	frozen, err := c.frozen(object)
	request.Name, request.Parameters = frozen.Name, frozen.Parameters
	return err
}

// request is the same each time, but for the values of the secret.
func (c *Controller) request(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent) (*csi.CreateVolumeGroupSnapshotRequest, error) {
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
	return &csi.CreateVolumeGroupSnapshotRequest{
		Name: frozen.Name, SourceVolumeIds: object.Spec.Source.VolumeHandles, Parameters: frozen.Parameters, Secrets: secrets,
	}, nil
}

func (c *Controller) create(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, request *csi.CreateVolumeGroupSnapshotRequest) (*csi.VolumeGroupSnapshot, error) {
	bounded, cancel := c.env.Call(ctx)
	defer cancel()
	group, err := c.env.CSI.CreateVolumeGroupSnapshot(bounded, request)
	if err == nil {
		err = check(object, group)
	}
	return group, err
}

// check tells what of an answer cannot be right. It settles nothing then: the
// group snapshot may exist, and nobody knows what is in it.
func check(object *groupv1.VolumeGroupSnapshotContent, group *csi.VolumeGroupSnapshot) error {
	id := group.GetGroupSnapshotId()
	switch {
	case id == "":
		return errors.New("the driver answered without a group_snapshot_id")
	case wanted(object) != "" && wanted(object) != id:
		return fmt.Errorf("the driver answered with group snapshot %q; this content is about %q", id, wanted(object))
	}
	return checkMembers(object, group)
}

func checkMembers(object *groupv1.VolumeGroupSnapshotContent, group *csi.VolumeGroupSnapshot) error {
	id := group.GetGroupSnapshotId()
	var ids, volumes []string
	for _, snapshot := range group.GetSnapshots() {
		if snapshot.GetSnapshotId() == "" || snapshot.GetSizeBytes() < 0 {
			return fmt.Errorf("the driver answered with group snapshot %q, of which a snapshot has the ID %q and %d bytes",
				id, snapshot.GetSnapshotId(), snapshot.GetSizeBytes())
		}
		if slices.Contains(ids, snapshot.GetSnapshotId()) {
			return fmt.Errorf("the driver answered with group snapshot %q, which has snapshot %q twice", id, snapshot.GetSnapshotId())
		}
		ids, volumes = append(ids, snapshot.GetSnapshotId()), append(volumes, snapshot.GetSourceVolumeId())
	}
	if handles := object.Spec.Source.VolumeHandles; !static(object) && !same(volumes, handles) {
		return fmt.Errorf("the driver answered with group snapshot %q of the volumes %q; asked for were %q", id, volumes, handles)
	}
	if known := members(object); len(known) > 0 && !same(ids, known) {
		return fmt.Errorf("the driver answered with group snapshot %q of the snapshots %q; this content is about %q", id, ids, known)
	}
	return nil
}

// same tells whether two lists have the same elements, in any order.
func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// refused records a failed call, as package snapshot does.
func (c *Controller) refused(ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, repeated bool, failure error) (*groupv1.VolumeGroupSnapshotContent, error) {
	if ctx.Err() != nil {
		return object, failure // the process ends: no fault of the driver's
	}
	outcome := lifecycle.AfterFailedCreate(lifecycle.Creation{
		Call: claim.CallSnapshot, Copied: true, Repeated: repeated, Desired: object.DeletionTimestamp == nil,
	}, failure)
	if outcome.KeepsIntent() {
		return c.failed(ctx, object, content.Kept(c.writer.Keys, "group snapshot", outcome, failure))
	}
	object, err := c.writer.Unmark(ctx, object)
	if err != nil {
		return object, errors.Join(failure, err)
	}
	return c.failed(ctx, object, failure)
}
