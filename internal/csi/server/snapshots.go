package server

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func (c *controller) CreateSnapshot(
	ctx context.Context, r *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	if r.GetAccessibilityRequirements() != nil && !c.traits.SnapshotTopology {
		return nil, fmt.Errorf("%w: accessibility_requirements are given, but this plugin lacks the capability "+
			"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", backend.ErrInvalid)
	}
	snapshot, err := c.guard.CreateSnapshot(ctx, backend.SnapshotSpec{
		Name: r.GetName(), SourceID: r.GetSourceVolumeId(),
		Parameters: withoutMetadata(r.GetParameters()), Secrets: r.GetSecrets(),
		Metadata: metadataOf(r.GetParameters()), Topology: toRequirement(r.GetAccessibilityRequirements()),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: fromSnapshot(snapshot)}, nil
}

func (c *controller) DeleteSnapshot(
	ctx context.Context, r *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	if err := c.guard.DeleteSnapshot(ctx, r.GetSnapshotId()); err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(ctx context.Context, r *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	snapshot, err := c.guard.Snapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: fromSnapshot(snapshot)}, nil
}

func (c *controller) ListSnapshots(
	ctx context.Context, r *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	filter := backend.SnapshotFilter{SnapshotID: r.GetSnapshotId(), SourceID: r.GetSourceVolumeId()}
	snapshots, next, err := c.guard.Snapshots(ctx, filter, r.GetStartingToken(), int(r.GetMaxEntries()))
	if err != nil {
		return nil, err
	}
	response := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range snapshots {
		response.Entries = append(response.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: fromSnapshot(snapshot)})
	}
	return response, nil
}
