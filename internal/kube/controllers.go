package kube

import (
	"context"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/attach"
	"github.com/holdfast-csi/holdfast/internal/kube/capacity"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/groupsnapshot"
	"github.com/holdfast-csi/holdfast/internal/kube/health"
	"github.com/holdfast-csi/holdfast/internal/kube/nodelabel"
	"github.com/holdfast-csi/holdfast/internal/kube/provision"
	"github.com/holdfast-csi/holdfast/internal/kube/resize"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/kube/snapshot"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
)

// build makes the controllers of the roles. Each requests the caches that it reads
// from the set.
func (c *Controllers) build(
	ctx context.Context, env *cluster.Env, info driverInfo, roles []Role,
) ([]controller, error) {
	t, limits, shared := c.options.Tuning, c.options.Limits, env
	var made []controller
	for _, role := range roles {
		env := shared.With(limits.of(role))
		switch role {
		case rights.Provision:
			provisioning, err := c.buildProvision(ctx, env, info, roles)
			if err != nil {
				return nil, err
			}
			made = append(made, provisioning...)
		case rights.Attach:
			o := attach.Options{DefaultFSType: t.DefaultFSType, Reconcile: t.ReconcileSync, MaxEntries: t.MaxEntries}
			if info.plugin.Topology && slices.Contains(roles, rights.Provision) {
				nodes := env.Set.Nodes() // which the provisioner watches, and has the right to
				o.Ready = func(node string) bool { object, found := nodes.Get(node); return found && cluster.Ready(object) }
			}
			made = append(made, attach.New(env, o))
		case rights.Resize:
			made = append(made, resize.New(env, resize.Options{
				Attachments: info.attaches(), IgnoreInUse: !t.HandleInUse, NoModify: !info.controller.Modify,
				ExtraModifyMetadata: t.ExtraModifyMetadata, Together: c.options.MergesChanges, ModifyTimeout: limits.ModifyTimeout,
			}))
		case rights.Snapshot:
			made = append(made, snapshot.New(env, snapshot.Options{Naming: t.SnapshotNames, ExtraMetadata: t.ExtraMetadata}))
		case rights.GroupSnapshot:
			made = append(made, groupsnapshot.New(env, groupsnapshot.Options{Naming: t.GroupNames, ExtraMetadata: t.ExtraMetadata}))
		case rights.Health:
			made = append(made, health.New(env, health.Options{
				Interval: t.HealthInterval, Parallel: limits.HealthMonitor.Workers,
			}))
		}
	}
	if c.options.NodeLabels != nil && shared.Scope.Central() {
		made = append(made, nodelabel.New(shared, c.options.NodeLabels))
	}
	return made, nil
}

// buildProvision makes the provisioner and, on demand, the capacity controller: both
// use one topology tracker.
func (c *Controllers) buildProvision(
	ctx context.Context, env *cluster.Env, info driverInfo, roles []Role,
) ([]controller, error) {
	t := c.options.Tuning
	tracker := topology.New(env, topology.Options{
		Strict: t.StrictTopology, Immediate: t.ImmediateTopology, Off: !info.plugin.Topology,
	})
	o := provision.Options{
		VolumeNamePrefix: t.VolumeNamePrefix, VolumeNameUUIDLength: t.VolumeNameUUIDLength, DefaultFSType: t.DefaultFSType,
		ExtraCreateMetadata: t.ExtraMetadata, PublishReadOnly: t.PublishReadOnly, AllowVolumeModeChange: !t.KeepVolumeMode,
		CrossNamespace: t.CrossNamespace,
		Snapshots:      info.controller.Snapshots, Attachments: info.attaches(),
		ImmediateOnNodes: t.ImmediateOnNodes, Topology: tracker, SourceWorkers: c.options.Limits.SourceWorkers,
	}
	if slices.Contains(roles, rights.Attach) && info.attaches() {
		o.AttachFinalizer = claim.AttacherFinalizer(info.name)
	}
	if !t.Capacity || !info.controller.Capacity {
		if t.Capacity {
			env.Logger.WarnContext(ctx, "no CSIStorageCapacity objects: the driver lacks GET_CAPACITY")
		}
		return []controller{provision.New(env, o)}, nil
	}
	// On a node the Node object owns them: they are deleted with the machine, not with the pod.
	owner := capacity.NodeOwner(env)
	if env.Scope.Central() {
		var err error
		if owner, err = capacity.OwnerAt(env, c.options.Pod, t.CapacityOwnerLevel); err != nil {
			return nil, err
		}
	}
	room := capacity.New(env, tracker, capacity.Options{
		// The elected process selects nodes for claims with immediate binding by these objects.
		Immediate: t.CapacityForImmediate || env.Scope.Labelled && t.ImmediateOnNodes,
		Poll:      t.CapacityPoll, Workers: c.options.Limits.CapacityWorkers, Owner: owner,
	})
	o.Observer, c.refusals = room, room
	return []controller{provision.New(env, o), room}, nil
}
