package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

type controller struct {
	csi.UnimplementedControllerServer
	guard    *guard.Guard
	traits   backend.Traits
	features guard.Features
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: controllerCapabilities(c.traits, c.features)}, nil
}

func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := c.checkAnnounced(r); err != nil {
		return nil, err
	}
	capabilities, err := toCapabilities(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	volume, err := c.guard.CreateVolume(ctx, guard.CreateRequest{
		Name: r.GetName(), Range: toRange(r.GetCapacityRange()), Capabilities: capabilities,
		Parameters:        withoutMetadata(r.GetParameters()),
		MutableParameters: r.GetMutableParameters(),
		Metadata:          metadataOf(r.GetParameters()),
		Source:            toSource(r.GetVolumeContentSource()),
		Topology:          toRequirement(r.GetAccessibilityRequirements()),
		Secrets:           r.GetSecrets(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: fromVolume(volume)}, nil
}

// checkAnnounced refuses the fields that CSI reserves for capabilities this
// plugin does not have.
func (c *controller) checkAnnounced(r *csi.CreateVolumeRequest) error {
	if len(r.GetMutableParameters()) > 0 && !c.features.Modify {
		return fmt.Errorf("%w: mutable_parameters are given, but this plugin lacks the capability MODIFY_VOLUME",
			backend.ErrInvalid)
	}
	if r.GetAccessibilityRequirements() != nil && len(c.traits.TopologyKeys) == 0 {
		return fmt.Errorf("%w: accessibility_requirements are given, but this plugin lacks the capability "+
			"VOLUME_ACCESSIBILITY_CONSTRAINTS", backend.ErrInvalid)
	}
	return nil
}

// withoutMetadata drops the parameters that the Kubernetes sidecars add with
// --extra-create-metadata: they name the requester and do not describe the volume. Any
// other key of theirs is left for the backend to refuse.
func withoutMetadata(parameters map[string]string) map[string]string {
	kept := maps.Clone(parameters)
	maps.DeleteFunc(kept, func(key, _ string) bool { return isMetadata(key) })
	return kept
}

// metadataOf returns the parameters that withoutMetadata drops.
func metadataOf(parameters map[string]string) map[string]string {
	kept := maps.Clone(parameters)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !isMetadata(key) })
	return kept
}

func isMetadata(key string) bool {
	name, ok := strings.CutPrefix(key, "csi.storage.k8s.io/")
	return ok && slices.Contains([]string{
		"pvc/name", "pvc/namespace", "pv/name",
		"volumesnapshot/name", "volumesnapshot/namespace", "volumesnapshotcontent/name",
		"volumegroupsnapshot/name", "volumegroupsnapshot/namespace", "volumegroupsnapshotcontent/name",
	}, name)
}

func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := c.guard.DeleteVolume(ctx, r.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ControllerGetVolume(
	ctx context.Context, r *csi.ControllerGetVolumeRequest,
) (*csi.ControllerGetVolumeResponse, error) {
	volume, err := c.guard.Volume(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: fromVolume(volume),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: volume.PublishedNodes},
	}, nil
}

func (c *controller) ListVolumes(ctx context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	volumes, next, err := c.guard.Volumes(ctx, r.GetStartingToken(), int(r.GetMaxEntries()))
	if err != nil {
		return nil, err
	}
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, volume := range volumes {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: fromVolume(volume),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: volume.PublishedNodes},
		})
	}
	return response, nil
}

func (c *controller) GetCapacity(ctx context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	capabilities, err := toCapabilities(r.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	capacity, err := c.guard.Capacity(ctx, withoutMetadata(r.GetParameters()), capabilities,
		r.GetAccessibleTopology().GetSegments())
	if err != nil {
		return nil, err
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: max(capacity.Available, 0),
		MaximumVolumeSize: known(capacity.MaximumVolumeSize),
		MinimumVolumeSize: known(capacity.MinimumVolumeSize),
	}, nil
}

func known(size int64) *wrapperspb.Int64Value {
	if size <= 0 {
		return nil
	}
	return wrapperspb.Int64(size)
}

func (c *controller) ControllerExpandVolume(
	ctx context.Context, r *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	volume, err := c.guard.Expand(ctx, r.GetVolumeId(), toRange(r.GetCapacityRange()))
	if err != nil {
		return nil, err
	}
	// Raw block volumes need the node too: its kernel has to see the new size.
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: volume.Size, NodeExpansionRequired: true}, nil
}

func (c *controller) ControllerModifyVolume(
	ctx context.Context, r *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	desired := r.GetMutableParameters()
	if err := c.guard.Modify(ctx, r.GetVolumeId(), withoutMetadata(desired), metadataOf(desired)); err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

func (c *controller) ControllerPublishVolume(
	ctx context.Context, r *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	capability, err := toCapability(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	published, err := c.guard.Attach(ctx, r.GetVolumeId(), r.GetNodeId(), backend.AttachSpec{
		Capability: capability, ReadOnly: r.GetReadonly(), Context: r.GetVolumeContext(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: published}, nil
}

func (c *controller) ControllerUnpublishVolume(
	ctx context.Context, r *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := c.guard.Detach(ctx, r.GetVolumeId(), r.GetNodeId()); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (c *controller) ControllerGetVolumeHealth(
	ctx context.Context, r *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	problems, err := c.guard.VolumeHealth(ctx, r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: fromHealth(r.GetVolumeId(), problems)}, nil
}

func (c *controller) ControllerListVolumeHealth(
	ctx context.Context, r *csi.ControllerListVolumeHealthRequest,
) (*csi.ControllerListVolumeHealthResponse, error) {
	unwell, next, err := c.guard.UnhealthyVolumes(ctx, r.GetStartingToken(), int(r.GetMaxEntries()))
	if err != nil {
		return nil, err
	}
	response := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, volume := range unwell {
		response.Entries = append(response.Entries, fromHealth(volume.Volume.ID, volume.Problems))
	}
	return response, nil
}
