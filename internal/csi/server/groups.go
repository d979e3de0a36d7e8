package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

type groupController struct {
	csi.UnimplementedGroupControllerServer
	guard *guard.Guard
}

func (g *groupController) GroupControllerGetCapabilities(
	context.Context, *csi.GroupControllerGetCapabilitiesRequest,
) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

func (g *groupController) CreateVolumeGroupSnapshot(
	ctx context.Context, r *csi.CreateVolumeGroupSnapshotRequest,
) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	group, err := g.guard.CreateGroup(ctx, backend.GroupSnapshotSpec{
		Name: r.GetName(), SourceIDs: r.GetSourceVolumeIds(),
		Parameters: withoutMetadata(r.GetParameters()), Secrets: r.GetSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: fromGroup(group)}, nil
}

func (g *groupController) DeleteVolumeGroupSnapshot(
	ctx context.Context, r *csi.DeleteVolumeGroupSnapshotRequest,
) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if err := g.guard.DeleteGroup(ctx, r.GetGroupSnapshotId(), r.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

func (g *groupController) GetVolumeGroupSnapshot(
	ctx context.Context, r *csi.GetVolumeGroupSnapshotRequest,
) (*csi.GetVolumeGroupSnapshotResponse, error) {
	group, err := g.guard.Group(ctx, r.GetGroupSnapshotId(), r.GetSnapshotIds())
	if err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: fromGroup(group)}, nil
}
