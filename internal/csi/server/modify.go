package server

import (
	"context"

	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csi/server/volumemodifier"
)

// modifier serves the calls of the sidecar volume-modifier-for-k8s. They are those of
// ControllerModifyVolume under other names.
type modifier struct {
	volumemodifier.UnimplementedModifyServer
	guard *guard.Guard
}

func (m *modifier) GetCSIDriverModificationCapability(
	context.Context, *volumemodifier.GetCSIDriverModificationCapabilityRequest,
) (*volumemodifier.GetCSIDriverModificationCapabilityResponse, error) {
	return &volumemodifier.GetCSIDriverModificationCapabilityResponse{}, nil
}

func (m *modifier) ModifyVolumeProperties(
	ctx context.Context, r *volumemodifier.ModifyVolumePropertiesRequest,
) (*volumemodifier.ModifyVolumePropertiesResponse, error) {
	desired := r.GetParameters()
	if err := m.guard.Modify(ctx, r.GetName(), withoutMetadata(desired), metadataOf(desired)); err != nil {
		return nil, err
	}
	return &volumemodifier.ModifyVolumePropertiesResponse{}, nil
}
