package client

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// PluginCapabilities are a driver's capabilities as a whole.
type PluginCapabilities struct {
	Controller, Topology, Groups, SnapshotMetadata bool
	SnapshotTopology                               bool
	OnlineExpansion, OfflineExpansion              bool
}

// ControllerCapabilities are those of a driver's controller.
type ControllerCapabilities struct {
	CreateDelete, Attach, PublishReadOnly, Snapshots, Clone, Expand, Modify bool
	ListVolumes, ListSnapshots, Capacity, GetVolume, SingleNodeMultiWriter  bool
	PublishedNodes, GetSnapshot, GetVolumeHealth, ListVolumeHealth          bool
}

// GroupCapabilities are those of a driver's group controller.
type GroupCapabilities struct {
	Snapshots bool // CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT
}

// NodeCapabilities are those of a driver's node service.
type NodeCapabilities struct {
	Stage, Expand, Stats, SingleNodeMultiWriter, MountGroup, VolumeHealth, StorageHealth bool
}

type capabilityCache struct {
	plugin     *PluginCapabilities
	controller *ControllerCapabilities
	groups     *GroupCapabilities
	node       *NodeCapabilities
	// lacksOperations: the driver does not implement Operations.
	lacksOperations bool
	// connection counts the connections that ended.
	connection int
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cache = capabilityCache{connection: c.cache.connection + 1}
}

// PluginCapabilities asks once per connection.
func (c *Client) PluginCapabilities(ctx context.Context) (PluginCapabilities, error) {
	return cached(ctx, c, func(cache *capabilityCache) **PluginCapabilities { return &cache.plugin }, c.fetchPlugin)
}

// ControllerCapabilities asks once per connection. A driver without a
// controller service has none of them.
func (c *Client) ControllerCapabilities(ctx context.Context) (ControllerCapabilities, error) {
	return cached(ctx, c, func(cache *capabilityCache) **ControllerCapabilities { return &cache.controller },
		c.fetchController)
}

// GroupCapabilities asks once per connection. A driver without a group
// controller service has none of them.
func (c *Client) GroupCapabilities(ctx context.Context) (GroupCapabilities, error) {
	return cached(ctx, c, func(cache *capabilityCache) **GroupCapabilities { return &cache.groups }, c.fetchGroups)
}

// NodeCapabilities asks once per connection.
func (c *Client) NodeCapabilities(ctx context.Context) (NodeCapabilities, error) {
	return cached(ctx, c, func(cache *capabilityCache) **NodeCapabilities { return &cache.node }, c.fetchNode)
}

// cached does not keep the lock during the call: two callers may both ask, and
// get the same answer. An answer over a connection that ended meanwhile is not
// kept: the next one may reach another version of the driver.
func cached[T any](
	ctx context.Context, c *Client, slot func(*capabilityCache) **T, fetch func(context.Context) (T, error),
) (T, error) {
	c.mu.Lock()
	known, connection := *slot(&c.cache), c.cache.connection
	c.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	fetched, err := fetch(ctx)
	if err != nil {
		return fetched, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cache.connection == connection {
		*slot(&c.cache) = &fetched
	}
	return fetched, nil
}

func (c *Client) fetchPlugin(ctx context.Context) (PluginCapabilities, error) {
	var found PluginCapabilities
	answer, err := call(ctx, c, "GetPluginCapabilities", &csi.GetPluginCapabilitiesRequest{},
		c.identity.GetPluginCapabilities)
	for _, capability := range answer.GetCapabilities() {
		switch capability.GetService().GetType() {
		case csi.PluginCapability_Service_CONTROLLER_SERVICE:
			found.Controller = true
		case csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS:
			found.Topology = true
		case csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE:
			found.Groups = true
		case csi.PluginCapability_Service_SNAPSHOT_METADATA_SERVICE:
			found.SnapshotMetadata = true
		case csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS:
			found.SnapshotTopology = true
		}
		switch capability.GetVolumeExpansion().GetType() {
		case csi.PluginCapability_VolumeExpansion_ONLINE:
			found.OnlineExpansion = true
		case csi.PluginCapability_VolumeExpansion_OFFLINE:
			found.OfflineExpansion = true
		}
	}
	return found, err
}

func (c *Client) fetchController(ctx context.Context) (ControllerCapabilities, error) {
	var found ControllerCapabilities
	plugin, err := c.PluginCapabilities(ctx)
	if err != nil || !plugin.Controller {
		return found, err
	}
	answer, err := call(ctx, c, "ControllerGetCapabilities", &csi.ControllerGetCapabilitiesRequest{},
		c.controller.ControllerGetCapabilities)
	for _, capability := range answer.GetCapabilities() {
		if flag := found.flag(capability.GetRpc().GetType()); flag != nil {
			*flag = true
		}
	}
	return found, err
}

func (c *ControllerCapabilities) flag(kind csi.ControllerServiceCapability_RPC_Type) *bool {
	switch kind {
	case csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME:
		return &c.CreateDelete
	case csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME:
		return &c.Attach
	case csi.ControllerServiceCapability_RPC_PUBLISH_READONLY:
		return &c.PublishReadOnly
	case csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT:
		return &c.Snapshots
	case csi.ControllerServiceCapability_RPC_CLONE_VOLUME:
		return &c.Clone
	case csi.ControllerServiceCapability_RPC_EXPAND_VOLUME:
		return &c.Expand
	case csi.ControllerServiceCapability_RPC_MODIFY_VOLUME:
		return &c.Modify
	case csi.ControllerServiceCapability_RPC_LIST_VOLUMES:
		return &c.ListVolumes
	case csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS:
		return &c.ListSnapshots
	case csi.ControllerServiceCapability_RPC_GET_CAPACITY:
		return &c.Capacity
	case csi.ControllerServiceCapability_RPC_GET_VOLUME:
		return &c.GetVolume
	case csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
		return &c.SingleNodeMultiWriter
	case csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES:
		return &c.PublishedNodes
	case csi.ControllerServiceCapability_RPC_GET_SNAPSHOT:
		return &c.GetSnapshot
	case csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH:
		return &c.GetVolumeHealth
	case csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH:
		return &c.ListVolumeHealth
	}
	return nil
}

func (c *Client) fetchGroups(ctx context.Context) (GroupCapabilities, error) {
	var found GroupCapabilities
	plugin, err := c.PluginCapabilities(ctx)
	if err != nil || !plugin.Groups {
		return found, err
	}
	answer, err := call(ctx, c, "GroupControllerGetCapabilities", &csi.GroupControllerGetCapabilitiesRequest{},
		c.groups.GroupControllerGetCapabilities)
	for _, capability := range answer.GetCapabilities() {
		if capability.GetRpc().GetType() == csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT {
			found.Snapshots = true
		}
	}
	return found, err
}

func (c *Client) fetchNode(ctx context.Context) (NodeCapabilities, error) {
	var found NodeCapabilities
	answer, err := call(ctx, c, "NodeGetCapabilities", &csi.NodeGetCapabilitiesRequest{}, c.node.NodeGetCapabilities)
	for _, capability := range answer.GetCapabilities() {
		if flag := found.flag(capability.GetRpc().GetType()); flag != nil {
			*flag = true
		}
	}
	return found, err
}

func (c *NodeCapabilities) flag(kind csi.NodeServiceCapability_RPC_Type) *bool {
	switch kind {
	case csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
		return &c.Stage
	case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
		return &c.Expand
	case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
		return &c.Stats
	case csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
		return &c.SingleNodeMultiWriter
	case csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
		return &c.MountGroup
	case csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH:
		return &c.VolumeHealth
	case csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH:
		return &c.StorageHealth
	}
	return nil
}
