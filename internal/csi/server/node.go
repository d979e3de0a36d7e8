package server

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/node"
)

type nodeServer struct {
	csi.UnimplementedNodeServer
	engine   Engine
	traits   backend.Traits
	features guard.Features
}

func (n *nodeServer) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: nodeCapabilities(n.traits, n.features)}, nil
}

func (n *nodeServer) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	info, err := n.engine.Info(ctx)
	if err != nil {
		return nil, err
	}
	response := &csi.NodeGetInfoResponse{NodeId: info.ID, MaxVolumesPerNode: max(info.MaxVolumes, 0)}
	if len(info.Topology) > 0 {
		response.AccessibleTopology = &csi.Topology{Segments: info.Topology}
	}
	return response, nil
}

func (n *nodeServer) NodeStageVolume(
	ctx context.Context, r *csi.NodeStageVolumeRequest,
) (*csi.NodeStageVolumeResponse, error) {
	capability, err := n.usable(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	err = n.engine.Stage(ctx, node.StageRequest{
		VolumeID: r.GetVolumeId(), StagingPath: r.GetStagingTargetPath(), Capability: capability,
		PublishContext: r.GetPublishContext(), VolumeContext: r.GetVolumeContext(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (n *nodeServer) NodeUnstageVolume(
	ctx context.Context, r *csi.NodeUnstageVolumeRequest,
) (*csi.NodeUnstageVolumeResponse, error) {
	if err := n.engine.Unstage(ctx, r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n *nodeServer) NodePublishVolume(
	ctx context.Context, r *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	capability, err := n.usable(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	err = n.engine.Publish(ctx, node.PublishRequest{
		VolumeID: r.GetVolumeId(), StagingPath: r.GetStagingTargetPath(), TargetPath: r.GetTargetPath(),
		Capability: capability, ReadOnly: r.GetReadonly(),
		PublishContext: r.GetPublishContext(), VolumeContext: r.GetVolumeContext(),
	})
	if err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// usable translates, and refuses a mode that no volume of this plugin has: CSI demands
// FAILED_PRECONDITION when a CO exceeds the volume's capabilities.
func (n *nodeServer) usable(c *csi.VolumeCapability) (backend.Capability, error) {
	capability, err := n.capability(c)
	if err != nil {
		return backend.Capability{}, err
	}
	if !slices.Contains(n.traits.AccessModes, capability.Mode) {
		return backend.Capability{}, fmt.Errorf("%w: volume_capability: access_mode %s is more than a volume of %s can do",
			backend.ErrPrecondition, capability.Mode, n.traits.DriverName)
	}
	return capability, nil
}

// capability translates, and refuses capabilities that this plugin did not announce.
func (n *nodeServer) capability(c *csi.VolumeCapability) (backend.Capability, error) {
	capability, err := toCapability(c)
	if err != nil {
		return backend.Capability{}, fmt.Errorf("volume_capability: %w", err)
	}
	if capability.MountGroup != "" {
		return backend.Capability{}, fmt.Errorf("%w: volume_capability.mount.volume_mount_group is given, but this plugin "+
			"lacks the capability VOLUME_MOUNT_GROUP", backend.ErrInvalid)
	}
	return capability, nil
}

func (n *nodeServer) NodeUnpublishVolume(
	ctx context.Context, r *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := n.engine.Unpublish(ctx, r.GetVolumeId(), r.GetTargetPath()); err != nil {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// atPath refuses to search a volume at a relative path. No volume can be
// there, so it is not found, which is also what csi-sanity 5.6.0 expects. Whether
// the path is one of this system or of Windows is for the engine to say.
func atPath(volumeID, path string) error {
	if filepath.IsAbs(path) || paths.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("%w: volume %s is not at volume_path %q, which is not an absolute path",
		backend.ErrNotFound, volumeID, path)
}

func (n *nodeServer) NodeGetVolumeStats(
	ctx context.Context, r *csi.NodeGetVolumeStatsRequest,
) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := atPath(r.GetVolumeId(), r.GetVolumePath()); err != nil {
		return nil, err
	}
	stats, err := n.engine.Stats(ctx, r.GetVolumeId(), r.GetVolumePath(), r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	usage := []*csi.VolumeUsage{fromUsage(csi.VolumeUsage_BYTES, stats.Bytes)}
	if stats.Inodes != nil {
		usage = append(usage, fromUsage(csi.VolumeUsage_INODES, *stats.Inodes))
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

func fromUsage(unit csi.VolumeUsage_Unit, u node.Usage) *csi.VolumeUsage {
	return &csi.VolumeUsage{Unit: unit, Total: u.Total, Used: u.Used, Available: u.Available}
}

func (n *nodeServer) NodeExpandVolume(
	ctx context.Context, r *csi.NodeExpandVolumeRequest,
) (*csi.NodeExpandVolumeResponse, error) {
	if !n.features.Expand {
		return nil, fmt.Errorf("%w: volumes of this plugin do not grow", backend.ErrUnsupported)
	}
	if err := atPath(r.GetVolumeId(), r.GetVolumePath()); err != nil {
		return nil, err
	}
	request := node.ExpandRequest{
		VolumeID: r.GetVolumeId(), VolumePath: r.GetVolumePath(), StagingPath: r.GetStagingTargetPath(),
		Range: toRange(r.GetCapacityRange()),
	}
	if given := r.GetVolumeCapability(); given != nil {
		capability, err := n.capability(given)
		if err != nil {
			return nil, err
		}
		request.Capability = &capability
	}
	size, err := n.engine.Expand(ctx, request)
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

func (n *nodeServer) NodeGetVolumeHealth(
	ctx context.Context, r *csi.NodeGetVolumeHealthRequest,
) (*csi.NodeGetVolumeHealthResponse, error) {
	problems, err := n.engine.VolumeHealth(ctx, r.GetVolumeId(), r.GetVolumePublishPath(), r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: fromHealth(r.GetVolumeId(), problems)}, nil
}

func (n *nodeServer) NodeGetStorageHealth(
	ctx context.Context, _ *csi.NodeGetStorageHealthRequest,
) (*csi.NodeGetStorageHealthResponse, error) {
	problems, err := n.engine.StorageHealth(ctx)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetStorageHealthResponse{BackendHealth: fromStorageHealth(problems)}, nil
}
