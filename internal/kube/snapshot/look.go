package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot/content"
)

// errAbsent: the driver does not know the snapshot that a content is about.
var errAbsent = errors.New("the driver has no such snapshot")

// look asks about a snapshot that another call made. A driver that can tell
// nothing about single snapshots is believed to have the ones that an
// administrator names; of a group's members the group tells.
func (c *Controller) look(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (*snapshotv1.VolumeSnapshotContent, error) {
	offered, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return c.failed(ctx, object, err)
	}
	if !offered.ListSnapshots && !offered.GetSnapshot {
		if !static(object) {
			return object, nil
		}
		return c.writer.Status(ctx, object, is(stepLook), taken(object, &csi.Snapshot{SnapshotId: wanted(object), ReadyToUse: true}, true))
	}
	snapshot, err := c.find(ctx, object, offered)
	if err != nil {
		return c.failed(ctx, object, err)
	}
	return c.writer.Status(ctx, object, is(stepLook), taken(object, snapshot, true))
}

// find asks the driver. ListSnapshots comes first: it is what drivers that were
// written for csi-snapshotter serve.
func (c *Controller) find(ctx context.Context, object *snapshotv1.VolumeSnapshotContent, offered client.ControllerCapabilities) (*csi.Snapshot, error) {
	secrets, err := c.lookSecret(ctx, object)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	find := c.list
	if !offered.ListSnapshots {
		find = c.get
	}
	snapshot, err := find(ctx, wanted(object), secrets)
	if err == nil {
		err = check(object, snapshot)
	}
	return snapshot, err
}

func (c *Controller) get(ctx context.Context, id string, secrets map[string]string) (*csi.Snapshot, error) {
	snapshot, err := c.env.CSI.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: id, Secrets: secrets})
	if errors.Is(err, backend.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", errAbsent, err)
	}
	return snapshot, err
}

// list looks for the very snapshot, also in what a driver answers that takes no
// notice of the filter.
func (c *Controller) list(ctx context.Context, id string, secrets map[string]string) (*csi.Snapshot, error) {
	request := &csi.ListSnapshotsRequest{SnapshotId: id, Secrets: secrets}
	for {
		answer, err := c.env.CSI.ListSnapshots(ctx, request)
		if errors.Is(err, backend.ErrNotFound) { // not CSI, but some drivers' way to say so
			return nil, fmt.Errorf("%w: %w", errAbsent, err)
		}
		if err != nil {
			return nil, err
		}
		for _, entry := range answer.GetEntries() {
			if entry.GetSnapshot().GetSnapshotId() == id {
				return entry.GetSnapshot(), nil
			}
		}
		if answer.GetNextToken() == "" || answer.GetNextToken() == request.GetStartingToken() {
			return nil, fmt.Errorf("%w: ListSnapshots does not show %q", errAbsent, id)
		}
		request.StartingToken = answer.GetNextToken()
	}
}

// lookSecret: contents of members name no class; snapshot-controller gives them
// the group's secret.
func (c *Controller) lookSecret(ctx context.Context, object *snapshotv1.VolumeSnapshotContent) (map[string]string, error) {
	if member(object) && !static(object) {
		return content.Secret(ctx, c.env, c.writer.Keys, object.Annotations)
	}
	class, err := c.parse(object)
	if err != nil {
		return nil, err
	}
	reference, err := class.LookSecret(names(object).Tokens())
	if err != nil {
		return nil, err
	}
	return c.env.Secret(ctx, reference)
}
