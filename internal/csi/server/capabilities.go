package server

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

// pluginCapabilities describes the plugin as a whole, so it must not depend on
// the mode of this instance.
func pluginCapabilities(t backend.Traits, f guard.Features) []*csi.PluginCapability {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if f.Groups {
		services = append(services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	if len(t.TopologyKeys) > 0 {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	if t.SnapshotTopology && f.Snapshots {
		services = append(services, csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
	}
	capabilities := make([]*csi.PluginCapability, 0, len(services)+1)
	for _, service := range services {
		capabilities = append(capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	if !f.Expand {
		return capabilities
	}
	return append(capabilities, &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: expansion(t)}},
	})
}

func expansion(t backend.Traits) csi.PluginCapability_VolumeExpansion_Type {
	if t.OnlineExpansion {
		return csi.PluginCapability_VolumeExpansion_ONLINE
	}
	return csi.PluginCapability_VolumeExpansion_OFFLINE
}

func controllerCapabilities(t backend.Traits, f guard.Features) []*csi.ControllerServiceCapability {
	var capabilities []*csi.ControllerServiceCapability
	offer := func(offered bool, types ...csi.ControllerServiceCapability_RPC_Type) {
		if !offered {
			return
		}
		for _, rpc := range types {
			capabilities = append(capabilities, &csi.ControllerServiceCapability{
				Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
			})
		}
	}
	offer(true,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME)
	offer(f.Attach,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	offer(f.Attach && t.ReadOnlyAttachment, csi.ControllerServiceCapability_RPC_PUBLISH_READONLY)
	offer(f.Capacity, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	offer(f.Snapshots,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT)
	offer(t.Clone, csi.ControllerServiceCapability_RPC_CLONE_VOLUME)
	offer(f.Expand, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME)
	offer(f.Modify, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	offer(sharesNode(t), csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	offer(f.Health,
		csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	return capabilities
}

func nodeCapabilities(t backend.Traits, f guard.Features) []*csi.NodeServiceCapability {
	types := []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	}
	if f.Expand {
		types = append(types, csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	if sharesNode(t) {
		types = append(types, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	}
	capabilities := make([]*csi.NodeServiceCapability, len(types))
	for i, rpc := range types {
		capabilities[i] = &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: rpc}},
		}
	}
	return capabilities
}

// sharesNode reports whether the two modes that SINGLE_NODE_MULTI_WRITER means are
// possible.
func sharesNode(t backend.Traits) bool {
	return slices.Contains(t.AccessModes, backend.SingleNodeMultiWriter) &&
		slices.Contains(t.AccessModes, backend.SingleNodeSingleWriter)
}
