package plugins

import (
	"context"
	"slices"
	"strings"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// capabilitiesOf lists the capabilities of a driver, in the words of the specification,
// with the service before each. An instance without a controller says so by
// answering none of the controller's calls.
func capabilitiesOf(ctx context.Context, client *csiclient.Client) ([]string, error) {
	plugin, err := client.PluginCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	controller, err := client.ControllerCapabilities(ctx)
	if err != nil && !csiclient.Lacks(err) {
		return nil, err
	}
	if csiclient.Lacks(err) {
		plugin.Controller = false // on this instance
	}
	groups, err := client.GroupCapabilities(ctx)
	if err != nil && !csiclient.Lacks(err) {
		return nil, err
	}
	node, err := client.NodeCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(pluginNames(plugin), controllerNames(controller), nodeNames(node))
	if groups.Snapshots {
		all = append(all, "group/CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT")
	}
	slices.Sort(all)
	return all, nil
}

// has is a capability and whether it is there.
type has struct {
	name string
	can  bool
}

func names(service string, all []has) []string {
	var found []string
	for _, one := range all {
		if one.can {
			found = append(found, service+"/"+one.name)
		}
	}
	return found
}

func pluginNames(c csiclient.PluginCapabilities) []string {
	return names("plugin", []has{
		{"CONTROLLER_SERVICE", c.Controller}, {"GROUP_CONTROLLER_SERVICE", c.Groups},
		{"VOLUME_ACCESSIBILITY_CONSTRAINTS", c.Topology}, {"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS", c.SnapshotTopology},
		{"SNAPSHOT_METADATA_SERVICE", c.SnapshotMetadata},
		{"ONLINE", c.OnlineExpansion}, {"OFFLINE", c.OfflineExpansion},
	})
}

func controllerNames(c csiclient.ControllerCapabilities) []string {
	return names("controller", []has{
		{"CREATE_DELETE_VOLUME", c.CreateDelete}, {"PUBLISH_UNPUBLISH_VOLUME", c.Attach},
		{"PUBLISH_READONLY", c.PublishReadOnly},
		{"CREATE_DELETE_SNAPSHOT", c.Snapshots}, {"CLONE_VOLUME", c.Clone}, {"EXPAND_VOLUME", c.Expand},
		{"MODIFY_VOLUME", c.Modify},
		{"LIST_VOLUMES", c.ListVolumes}, {"LIST_SNAPSHOTS", c.ListSnapshots}, {"GET_CAPACITY", c.Capacity},
		{"GET_VOLUME", c.GetVolume},
		{"SINGLE_NODE_MULTI_WRITER", c.SingleNodeMultiWriter}, {"LIST_VOLUMES_PUBLISHED_NODES", c.PublishedNodes},
		{"GET_SNAPSHOT", c.GetSnapshot}, {"GET_VOLUME_HEALTH", c.GetVolumeHealth},
		{"LIST_VOLUME_HEALTH", c.ListVolumeHealth},
	})
}

func nodeNames(c csiclient.NodeCapabilities) []string {
	return names("node", []has{
		{"STAGE_UNSTAGE_VOLUME", c.Stage}, {"EXPAND_VOLUME", c.Expand}, {"GET_VOLUME_STATS", c.Stats},
		{"SINGLE_NODE_MULTI_WRITER", c.SingleNodeMultiWriter}, {"VOLUME_MOUNT_GROUP", c.MountGroup},
		{"GET_VOLUME_HEALTH", c.VolumeHealth}, {"GET_STORAGE_HEALTH", c.StorageHealth},
	})
}

// lacking returns the names that before has and now lacks.
func lacking(before, now []string) string {
	missing := slices.DeleteFunc(slices.Clone(before), func(name string) bool { return slices.Contains(now, name) })
	return strings.Join(missing, ", ")
}
