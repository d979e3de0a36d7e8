// Package groupsnapshot serves a driver's VolumeGroupSnapshotContents, as
// csi-snapshotter does: it asks the driver for snapshots of several volumes at
// one instant, reports when they are ready, and deletes them. Snapshot-controller
// creates the contents of the single snapshots in a group, and package snapshot
// serves them.
//
// As there, the content is the intent: it is marked before the call.
package groupsnapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Options are those of package content.
type Options = content.Options

// Controller is the group snapshot controller of one driver.
type Controller = content.Controller[*groupv1.VolumeGroupSnapshotContent]

// kind is VolumeGroupSnapshotContent.
type kind struct {
	env     *cluster.Env
	classes *cluster.Store[*groupv1.VolumeGroupSnapshotClass]
}

// New returns the controller and registers its caches. It writes and calls nothing before
// Run.
func New(env *cluster.Env, o Options) *Controller {
	return content.New(env, traits(), kind{env, env.Set.GroupClasses()},
		env.Set.GroupContents(), env.Snapshots.GroupsnapshotV1().VolumeGroupSnapshotContents(), o)
}

// traits has Inspected: GetVolumeGroupSnapshot is part of the capability, and
// unlike the call that creates it cannot create anything.
func traits() content.Traits {
	return content.Traits{
		Kind: "VolumeGroupSnapshotContent", ClassKind: "VolumeGroupSnapshotClass", Noun: "group snapshot", Failpoints: "groupsnapshot",
		Queue: "csi-snapshotter-groupsnapshotcontent", Operation: metrics.KindGroupSnapshot, Deletion: metrics.KindDeleteGroupSnapshot, Group: groupv1.SchemeGroupVersion,
		Resources:      []string{"volumegroupsnapshotcontents", "volumegroupsnapshotclasses"},
		Keys:           claim.GroupSnapshotKeys(),
		ReasonCreation: "GroupSnapshotCreationFailed", ReasonCheck: "GroupSnapshotContentCheckandUpdateFailed", ReasonDelete: "GroupSnapshotDeleteError",
		HandleField: "volumeGroupSnapshotHandle",
		Cleared:     []string{"volumeGroupSnapshotHandle", "readyToUse", "creationTime", "error"},
		Inspected:   true,
		ParseClass:  claim.ParseGroupSnapshotClass, Name: claim.Naming.GroupSnapshotName, Metadata: claim.SnapshotNames.GroupMetadata,
	}
}

func (k kind) Class(name string) (driver string, parameters map[string]string, found bool) {
	class, found := k.classes.Get(name)
	if !found {
		return "", nil, false
	}
	return class.Driver, class.Parameters, true
}

// Able returns an error if the driver does not serve groups.
func (k kind) Able(ctx context.Context) error {
	plugin, err := k.env.CSI.PluginCapabilities(ctx)
	if err != nil {
		return err
	}
	groups, err := k.env.CSI.GroupCapabilities(ctx)
	if err != nil {
		return err
	}
	if !plugin.Groups || !groups.Snapshots {
		return fmt.Errorf("the driver %s does not support group snapshots (it lacks GROUP_CONTROLLER_SERVICE or CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT)", k.env.Driver)
	}
	return nil
}

func (k kind) Create(
	ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, request content.Request, secrets map[string]string,
) (content.Answer, error) {
	group, err := k.env.CSI.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{
		Name: request.Name, SourceVolumeIds: object.Spec.Source.VolumeHandles, Parameters: request.Parameters, Secrets: secrets,
	})
	if err == nil {
		err = check(object, group)
	}
	if err != nil {
		return content.Answer{}, err
	}
	return content.Answer{Status: taken(object, group)}, nil
}

// check returns an error for an answer that contradicts the content. The outcome is
// unknown then: the group snapshot may exist.
func check(object *groupv1.VolumeGroupSnapshotContent, group *csi.VolumeGroupSnapshot) error {
	id := group.GetGroupSnapshotId()
	switch {
	case id == "":
		return errors.New("the driver answered without a group_snapshot_id")
	case desired(object) != "" && desired(object) != id:
		return fmt.Errorf("the driver answered with group snapshot %q; this content is about %q", id, desired(object))
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

// same reports whether two lists have the same elements, in any order.
func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func (k kind) Inspect(
	ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, class func() (claim.SnapshotClass, error),
) (content.Answer, error) {
	group, err := k.find(ctx, object, class)
	if err != nil {
		return content.Answer{}, err
	}
	return content.Answer{Status: taken(object, group)}, nil
}

func (k kind) Has(
	ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, class func() (claim.SnapshotClass, error),
) (bool, error) {
	_, err := k.find(ctx, object, class)
	if lifecycle.IsAbsent(err) {
		return false, nil
	}
	return err == nil, err
}

func (k kind) find(
	ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, class func() (claim.SnapshotClass, error),
) (*csi.VolumeGroupSnapshot, error) {
	if err := k.Able(ctx); err != nil {
		return nil, err
	}
	parsed, err := class()
	if err != nil {
		return nil, err
	}
	reference, err := parsed.InspectSecret(names(object).GroupTokens())
	if err != nil {
		return nil, err
	}
	secrets, err := content.InspectSecret(ctx, k.env, reference, claim.GroupSnapshotKeys(), object.Annotations)
	if err != nil {
		return nil, err
	}
	bounded, cancel := k.env.Call(ctx)
	defer cancel()
	group, err := k.env.CSI.GetVolumeGroupSnapshot(bounded, &csi.GetVolumeGroupSnapshotRequest{
		GroupSnapshotId: desired(object), SnapshotIds: members(object), Secrets: secrets,
	})
	if err == nil {
		err = check(object, group)
	}
	return group, err
}

func (k kind) Delete(
	ctx context.Context, object *groupv1.VolumeGroupSnapshotContent, secrets map[string]string,
) error {
	return k.env.CSI.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{
		GroupSnapshotId: handleOf(object), SnapshotIds: members(object), Secrets: secrets,
	})
}
