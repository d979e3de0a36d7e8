package snapshot

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Inspect asks the driver for a snapshot that another call created. A driver without calls
// for single snapshots is assumed to have the ones that an administrator names;
// a group's members are served through the group.
func (k kind) Inspect(
	ctx context.Context, object *snapshotv1.VolumeSnapshotContent, class func() (claim.SnapshotClass, error),
) (content.Answer, error) {
	offered, err := k.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return content.Answer{}, err
	}
	if !offered.ListSnapshots && !offered.GetSnapshot {
		if !static(object) {
			return content.Answer{}, nil
		}
		assumed := &csi.Snapshot{SnapshotId: desired(object), ReadyToUse: true}
		return content.Answer{Status: taken(object, assumed, true)}, nil
	}
	snapshot, err := k.find(ctx, object, offered, class)
	if err != nil {
		return content.Answer{}, err
	}
	return content.Answer{Status: taken(object, snapshot, true), Topology: snapshot.GetAccessibleTopology()}, nil
}

func (k kind) Has(
	ctx context.Context, object *snapshotv1.VolumeSnapshotContent, class func() (claim.SnapshotClass, error),
) (bool, error) {
	offered, err := k.env.CSI.ControllerCapabilities(ctx)
	if err != nil || !offered.ListSnapshots && !offered.GetSnapshot {
		return false, err
	}
	_, err = k.find(ctx, object, offered, class)
	if errors.Is(err, client.ErrNoSnapshot) {
		return false, nil
	}
	return err == nil, err
}

// find asks the driver. ListSnapshots comes first: drivers that were written for
// csi-snapshotter serve it.
func (k kind) find(
	ctx context.Context, object *snapshotv1.VolumeSnapshotContent, offered client.ControllerCapabilities, class func() (claim.SnapshotClass, error),
) (*csi.Snapshot, error) {
	secrets, err := k.inspectSecret(ctx, object, class)
	if err != nil {
		return nil, err
	}
	ctx, cancel := k.env.Call(ctx)
	defer cancel()
	snapshot, err := k.env.CSI.FindSnapshot(ctx, offered, desired(object), secrets)
	if err == nil {
		err = lifecycle.CheckSnapshotAnswer(object, snapshot)
	}
	return snapshot, err
}

// inspectSecret reads the secret of the class. Contents of members name no class;
// snapshot-controller gives them the group's secret.
func (k kind) inspectSecret(
	ctx context.Context, object *snapshotv1.VolumeSnapshotContent, class func() (claim.SnapshotClass, error),
) (map[string]string, error) {
	if member(object) && !static(object) {
		return content.Secret(ctx, k.env, claim.VolumeSnapshotKeys(), object.Annotations)
	}
	parsed, err := class()
	if err != nil {
		return nil, err
	}
	reference, err := parsed.InspectSecret(names(object).Tokens())
	if err != nil {
		return nil, err
	}
	return k.env.Secret(ctx, reference)
}
