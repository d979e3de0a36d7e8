package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// probePause is the pause between two Probe calls while the driver starts.
const probePause = time.Second

// nodeInfoTimeout limits NodeGetInfo in a central process, which does not need it.
const nodeInfoTimeout = 2 * time.Second

// driverInfo is the driver's name, capabilities and node.
type driverInfo struct {
	name       string
	plugin     csiclient.PluginCapabilities
	controller csiclient.ControllerCapabilities
	groups     csiclient.GroupCapabilities
	// nodeExpand is known only if the driver serves the Node service, too.
	nodeExpand bool
	// nodeID is the node_id of a driver that has a node service; "" if a central process
	// cannot read it.
	nodeID string
	// scope is the node's scope, or the zero Scope in a central process.
	scope cluster.Scope
}

// handshake waits until the driver is ready, without a limit, and reads its info.
func handshake(ctx context.Context, client *csiclient.Client, node string, log *slog.Logger) (driverInfo, error) {
	for logged := false; ; logged = true {
		found, err := readDriverInfo(ctx, client, node, log)
		if err == nil || ctx.Err() != nil || !csiclient.IsNotReady(err) {
			return found, err
		}
		if !logged {
			log.InfoContext(ctx, "waiting for the driver", "error", err)
		}
		if !work.Sleep(ctx, probePause) {
			return driverInfo{}, ctx.Err()
		}
	}
}

func readDriverInfo(
	ctx context.Context, client *csiclient.Client, node string, log *slog.Logger,
) (f driverInfo, err error) {
	if err := client.Probe(ctx); err != nil {
		return f, fmt.Errorf("probe the driver: %w", err)
	}
	info, err := client.PluginInfo(ctx)
	if err != nil {
		return f, fmt.Errorf("read the driver's name: %w", err)
	}
	if f.name = info.GetName(); f.name == "" {
		return f, errors.New("the driver's name is empty (GetPluginInfo), which CSI forbids: correct the driver")
	}
	if f.plugin, err = client.PluginCapabilities(ctx); err != nil {
		return f, fmt.Errorf("read the driver's plugin capabilities: %w", err)
	}
	if f.controller, err = client.ControllerCapabilities(ctx); err != nil {
		return f, fmt.Errorf("read the driver's controller capabilities: %w", err)
	}
	if f.groups, err = client.GroupCapabilities(ctx); err != nil {
		return f, fmt.Errorf("read the driver's group controller capabilities: %w", err)
	}
	capabilities, err := client.NodeCapabilities(ctx)
	if err != nil && !csiclient.Lacks(err) {
		return f, fmt.Errorf("read the driver's node capabilities: %w", err)
	}
	f.nodeExpand = capabilities.Expand
	switch {
	case node != "":
		f.nodeID, f.scope, err = nodeOf(ctx, client, node)
		return f, err
	case err == nil:
		f.nodeID = optionalNodeID(ctx, client, log)
	}
	return f, nil
}

// optionalNodeID returns the node_id of the driver of a central process. It returns ""
// if NodeGetInfo fails: such a driver may lack a node, and the process works without one.
func optionalNodeID(ctx context.Context, client *csiclient.Client, log *slog.Logger) string {
	ctx, cancel := context.WithTimeout(ctx, nodeInfoTimeout)
	defer cancel()
	info, err := client.NodeInfo(ctx)
	if err != nil {
		log.InfoContext(ctx, "the driver reports no node_id: after a change to node deployment, intents of several places wait for a central process", "error", err)
		return ""
	}
	return info.GetNodeId()
}

// nodeOf returns the node_id of the driver of a node's process, and the part of the
// cluster that the process acts on.
func nodeOf(ctx context.Context, client *csiclient.Client, node string) (id string, scope cluster.Scope, err error) {
	info, err := client.NodeInfo(ctx)
	if err != nil {
		return "", cluster.Scope{}, fmt.Errorf("read the driver's node: %w", err)
	}
	segments := info.GetAccessibleTopology().GetSegments()
	if len(segments) == 0 {
		return "", cluster.Scope{}, errors.New("node deployment needs a driver that reports its node's topology " +
			"(NodeGetInfo, accessible_topology), and this driver reports none: run the controllers centrally")
	}
	return info.GetNodeId(), cluster.Scope{Node: node, Segments: segments}, nil
}

// errChanged reports that the driver differs from the one of the handshake.
var errChanged = errors.New("the driver has changed")

// watchDriver returns an error if the driver after a reconnection differs from the
// one that the controllers were made for: the process then restarts them.
//
// After a reconnection it retries at once what failed meanwhile: during a long
// absence the backoff has grown to minutes.
func watchDriver(ctx context.Context, env *cluster.Env, info driverInfo, reconnected <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected:
		}
		found, err := handshake(ctx, env.CSI, info.scope.Node, env.Logger)
		switch {
		case err != nil:
			return unless(ctx, err)
		case found.name != info.name:
			return fmt.Errorf("%w: its name was %q and is %q", errChanged, info.name, found.name)
		case !found.same(info):
			return fmt.Errorf("%w: its name is still %q, but its capabilities differ", errChanged, info.name)
		}
		env.Logger.InfoContext(ctx, "the driver is back", "driver", info.name)
		env.Hurry(csiclient.IsNotReady)
	}
}

// same reports whether a driver is the earlier one. A node_id that could not be read is
// no difference.
func (f driverInfo) same(earlier driverInfo) bool {
	return f.plugin == earlier.plugin && f.controller == earlier.controller && f.groups == earlier.groups &&
		f.nodeExpand == earlier.nodeExpand && (f.nodeID == "" || f.nodeID == earlier.nodeID) &&
		f.scope.Node == earlier.scope.Node && maps.Equal(f.scope.Segments, earlier.scope.Segments)
}

// attaches reports whether the process serves VolumeAttachments. A node's process has
// no right to read or write them (package rights).
func (f driverInfo) attaches() bool { return f.controller.Attach && f.scope.Central() }

// Role is one controller, which replaces a sidecar.
type Role = rights.Role

// Roles returns all roles. Modification is part of resize: one worker does both, so
// that two workers do not overwrite each other's changes of a claim's status.
func Roles() []Role {
	return []Role{rights.Provision, rights.Attach, rights.Resize, rights.Snapshot, rights.GroupSnapshot, rights.Health}
}

// supports reports whether the driver has the capabilities that a role needs.
func (f driverInfo) supports(role Role) bool {
	switch role {
	case rights.Provision:
		return f.controller.CreateDelete
	case rights.Attach:
		// Also without PUBLISH_UNPUBLISH_VOLUME: if the CSIDriver object is missing or
		// does not say attachRequired: false, Kubernetes waits for status.attached.
		return f.scope.Central()
	case rights.Resize:
		return f.controller.Expand || f.controller.Modify || f.nodeExpand
	case rights.Snapshot:
		return f.controller.Snapshots
	case rights.GroupSnapshot:
		return f.groups.Snapshots
	case rights.Health:
		return f.controller.GetVolumeHealth
	}
	return false
}

// roles returns the requested roles that the driver supports.
func (f driverInfo) roles(wanted []Role) []Role {
	return slices.DeleteFunc(slices.Clone(wanted), func(r Role) bool { return !f.supports(r) })
}
