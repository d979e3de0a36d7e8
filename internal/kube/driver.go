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

// probePause is how often a driver that still starts is asked again.
const probePause = time.Second

// facts are what a driver says of itself.
type facts struct {
	name       string
	plugin     csiclient.PluginCapabilities
	controller csiclient.ControllerCapabilities
	groups     csiclient.GroupCapabilities
	// nodeExpand is known only where the Node service answers, too.
	nodeExpand bool
	// nodeID is the node_id of a driver that has a node service.
	nodeID string
	// scope is the node's, or the zero Scope.
	scope cluster.Scope
}

// meet waits until the driver answers that it is ready, for as long as it
// takes, and asks what it is.
func meet(ctx context.Context, client *csiclient.Client, node string, log *slog.Logger) (facts, error) {
	for told := false; ; told = true {
		found, err := ask(ctx, client, node)
		if err == nil || ctx.Err() != nil || !csiclient.IsNotReady(err) {
			return found, err
		}
		if !told {
			log.InfoContext(ctx, "waiting for the driver", "error", err)
		}
		if !work.Sleep(ctx, probePause) {
			return facts{}, ctx.Err()
		}
	}
}

func ask(ctx context.Context, client *csiclient.Client, node string) (f facts, err error) {
	if err := client.Probe(ctx); err != nil {
		return f, fmt.Errorf("probe the driver: %w", err)
	}
	info, err := client.PluginInfo(ctx)
	if err != nil {
		return f, fmt.Errorf("ask the driver for its name: %w", err)
	}
	if f.name = info.GetName(); f.name == "" {
		return f, errors.New("the driver gives no name (GetPluginInfo): it cannot be served")
	}
	if f.plugin, err = client.PluginCapabilities(ctx); err != nil {
		return f, fmt.Errorf("ask what the driver can do: %w", err)
	}
	if f.controller, err = client.ControllerCapabilities(ctx); err != nil {
		return f, fmt.Errorf("ask what the driver's controller can do: %w", err)
	}
	if f.groups, err = client.GroupCapabilities(ctx); err != nil {
		return f, fmt.Errorf("ask what the driver's group controller can do: %w", err)
	}
	if able, err := client.NodeCapabilities(ctx); err == nil {
		f.nodeExpand = able.Expand
		if f.nodeID, err = nodeID(ctx, client); err != nil {
			return f, err
		}
	} else if !csiclient.Lacks(err) {
		return f, fmt.Errorf("ask what the driver's node service can do: %w", err)
	}
	if node != "" {
		f.scope, err = scopeOf(ctx, client, node)
	}
	return f, err
}

// nodeID is the node_id of the driver, "" if it cannot name one: that of a controller
// alone need not.
func nodeID(ctx context.Context, client *csiclient.Client) (string, error) {
	info, err := client.NodeInfo(ctx)
	switch {
	case csiclient.IsNotReady(err):
		return "", fmt.Errorf("ask the driver for its node: %w", err)
	case err != nil:
		return "", nil //nolint:nilerr // a controller's process may lack what the answer needs
	}
	return info.GetNodeId(), nil
}

// scopeOf is the part of the cluster that a node's own process acts on.
func scopeOf(ctx context.Context, client *csiclient.Client, node string) (cluster.Scope, error) {
	info, err := client.NodeInfo(ctx)
	if err != nil {
		return cluster.Scope{}, fmt.Errorf("ask the driver for its node: %w", err)
	}
	segments := info.GetAccessibleTopology().GetSegments()
	if len(segments) == 0 {
		return cluster.Scope{}, errors.New("node deployment needs a driver that names its node's topology (NodeGetInfo, accessible_topology); this one does not: run the controllers centrally")
	}
	return cluster.Scope{Node: node, Segments: segments}, nil
}

// errChanged says that another driver answers than the one that was met.
var errChanged = errors.New("the driver is not the one that was there before")

// watchDriver returns an error when what answers is no longer the driver that
// the controllers were made for: they start anew then, with the new facts.
//
// What failed while the driver was away is not left to its pauses, which have
// grown up to minutes in a long absence.
func watchDriver(ctx context.Context, env *cluster.Env, met facts, reconnected <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-reconnected:
		}
		found, err := meet(ctx, env.CSI, met.scope.Node, env.Logger)
		switch {
		case err != nil:
			return unless(ctx, err)
		case found.name != met.name:
			return fmt.Errorf("%w: it was %q and is %q", errChanged, met.name, found.name)
		case !found.same(met):
			return fmt.Errorf("%w: it is still %q, but it can do other things than before", errChanged, met.name)
		}
		env.Logger.InfoContext(ctx, "the driver is back", "driver", met.name)
		env.Hurry(csiclient.IsNotReady)
	}
}

func (f facts) same(other facts) bool {
	return f.plugin == other.plugin && f.controller == other.controller && f.groups == other.groups &&
		f.nodeExpand == other.nodeExpand && f.nodeID == other.nodeID && f.scope.Node == other.scope.Node && maps.Equal(f.scope.Segments, other.scope.Segments)
}

// attaches tells whether VolumeAttachments matter: on a node for itself they
// are neither the process's to serve nor to read (package rights).
func (f facts) attaches() bool { return f.controller.Attach && f.scope.Central() }

// Role is one controller's work, in place of a sidecar.
type Role = rights.Role

// Roles are all roles. Modification is part of resize: one worker does both, so
// that they do not fight over a claim's status.
func Roles() []Role {
	return []Role{rights.Provision, rights.Attach, rights.Resize, rights.Snapshot, rights.GroupSnapshot, rights.Health}
}

// can tells whether a driver is able to do what a role asks of it.
func (f facts) can(role Role) bool {
	switch role {
	case rights.Provision:
		return f.controller.CreateDelete
	case rights.Attach:
		// Without PUBLISH_UNPUBLISH_VOLUME there may still be a CSIDriver object, or
		// none, that makes Kubernetes wait for an attachment: somebody has to say yes.
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

// chosen are the roles that are wanted and that the driver is able to serve.
func (f facts) chosen(wanted []Role) []Role {
	return slices.DeleteFunc(slices.Clone(wanted), func(r Role) bool { return !f.can(r) })
}
