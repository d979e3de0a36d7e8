package server

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// ValidateVolumeCapabilities confirms by echoing the request; a mismatch is not an
// error but an answer without confirmation, with the reason.
func (c *controller) ValidateVolumeCapabilities(
	ctx context.Context, r *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	volume, err := c.guard.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if message := c.objection(volume, r); message != "" {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: message}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{
		Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
			VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(),
			Parameters: r.GetParameters(), MutableParameters: r.GetMutableParameters(),
		},
	}, nil
}

// objection names the first mismatch, "" without one.
func (c *controller) objection(volume backend.Volume, r *csi.ValidateVolumeCapabilitiesRequest) string {
	capabilities, err := toCapabilities(r.GetVolumeCapabilities())
	if err == nil {
		err = c.guard.Validate(volume, backend.VolumeSpec{
			Capabilities: capabilities, Parameters: withoutMetadata(r.GetParameters()),
			MutableParameters: r.GetMutableParameters(), Size: volume.Size,
		})
	}
	if err == nil {
		err = checkSame(volume, r)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// checkSame compares the context that the CO knows with the volume's.
func checkSame(volume backend.Volume, r *csi.ValidateVolumeCapabilitiesRequest) error {
	// A CO adds keys to the context (Kubernetes' provisioner does),
	// so only those of the volume are compared.
	for key, value := range volume.Context {
		if given, has := r.GetVolumeContext()[key]; has && given != value {
			return fmt.Errorf("volume_context: %s is %q for this volume, not %q", key, value, given)
		}
	}
	return nil
}
