package kube

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/attach"
	"github.com/holdfast-csi/holdfast/internal/kube/capacity"
	"github.com/holdfast-csi/holdfast/internal/kube/health"
)

// Tuning are the settings of the single controllers, under the names that the
// sidecars' flags have.
type Tuning struct {
	// Topology: see package topology.
	StrictTopology, ImmediateTopology bool
	// Capacity turns CSIStorageCapacity objects on.
	Capacity, CapacityForImmediate bool
	CapacityPoll                   time.Duration
	CapacityOwnerLevel             int

	ExtraMetadata                 bool
	DefaultFSType                 string
	VolumeNamePrefix              string
	VolumeNameUUIDLength          int
	PublishReadOnly               bool
	KeepVolumeMode                bool
	CrossNamespace                bool
	ImmediateOnNodes, HandleInUse bool
	// NodeObjectsOnly restricts a node's process to the objects of its node
	// (cluster.Scope.Labelled).
	NodeObjectsOnly bool
	// NodeLabelPolicy is cluster.LabelPolicy's name.
	NodeLabelPolicy           string
	ExtraModifyMetadata       bool
	SnapshotNames, GroupNames claim.Naming
	ReconcileSync             time.Duration
	MaxEntries                int32
	HealthInterval            time.Duration
}

// Bind declares the flags.
func (t *Tuning) Bind(flags *pflag.FlagSet) {
	flags.BoolVar(&t.StrictTopology, "strict-topology", false,
		"create a volume in the topology segment of its selected node only")
	flags.BoolVar(&t.ImmediateTopology, "immediate-topology", true,
		"send the driver all topology segments for a claim without a selected node")
	flags.BoolVar(&t.Capacity, "enable-capacity", false, "maintain CSIStorageCapacity objects for the scheduler")
	flags.BoolVar(&t.CapacityForImmediate, "capacity-for-immediate-binding", false,
		"maintain them for classes with immediate binding, too")
	flags.DurationVar(&t.CapacityPoll, "capacity-poll-interval", capacity.DefaultPoll,
		"interval of the GetCapacity calls for each topology segment")
	flags.IntVar(&t.CapacityOwnerLevel, "capacity-ownerref-level", capacity.OwnerController,
		"their owner: -1 none, 0 the pod, 1 its controller, 2 its Deployment")
	flags.BoolVar(&t.ExtraMetadata, "extra-create-metadata", false,
		"send the driver the names of claim and volume, or of snapshot and content")
	flags.StringVar(&t.DefaultFSType, "default-fstype", "", "filesystem of volumes whose class names none")
	flags.StringVar(&t.VolumeNamePrefix, "volume-name-prefix", "pvc", "prefix of the names of volumes")
	flags.IntVar(&t.VolumeNameUUIDLength, "volume-name-uuid-length", -1, "digits of the claim's UID in a volume's name; below 0 all, with dashes")
	flags.BoolVar(&t.PublishReadOnly, "controller-publish-readonly", false, "mark volumes of ReadOnlyMany claims as read-only")
	flags.BoolVar(&t.KeepVolumeMode, "prevent-volume-mode-conversion", true, "refuse to restore a snapshot in another volume mode unless its content allows it")
	t.BindCoordination(flags)
	flags.BoolVar(&t.NodeObjectsOnly, "node-objects-only", false,
		"with node deployment, list and watch the objects of this node only; "+
			"one process, elected by a lease, labels them and selects nodes")
	flags.StringVar(&t.NodeLabelPolicy, "node-label-policy", "",
		"with --node-objects-only, the `NAME` of the MutatingAdmissionPolicy and its binding that label PersistentVolumes "+
			"of the driver when they are created; without them, each deletion lists those without a label")
	flags.BoolVar(&t.HandleInUse, "handle-volume-inuse-error", true,
		"after the driver refused to expand a volume in use, retry only when it is not in use")
	flags.BoolVar(&t.ExtraModifyMetadata, "extra-modify-metadata", false,
		"send the driver the names of claim and volume when it modifies a volume")
	flags.StringVar(&t.SnapshotNames.Prefix, "snapshot-name-prefix", "snapshot", "prefix of the names of snapshots")
	flags.IntVar(&t.SnapshotNames.UIDLength, "snapshot-name-uuid-length", -1, "digits of the UID in a snapshot's name; below 0 all, with dashes")
	flags.StringVar(&t.GroupNames.Prefix, "groupsnapshot-name-prefix", "groupsnapshot",
		"prefix of the names of group snapshots")
	flags.IntVar(&t.GroupNames.UIDLength, "groupsnapshot-name-uuid-length", -1, "digits of the UID in a group snapshot's name; below 0 all, with dashes")
	flags.DurationVar(&t.ReconcileSync, "reconcile-sync", attach.DefaultReconcile,
		"interval at which attachments are compared with the driver's list; below 0 never")
	flags.Int32Var(&t.MaxEntries, "max-entries", 0, "entries of a page of ListVolumes; 0 means the driver's default")
	flags.DurationVar(&t.HealthInterval, "monitor-interval", health.DefaultInterval, "interval of the polls of volume health")
}

// BindCoordination declares the flags that the coordinator of the nodes has, too.
func (t *Tuning) BindCoordination(flags *pflag.FlagSet) {
	flags.BoolVar(&t.CrossNamespace, "cross-namespace-sources", false,
		"serve claims whose source is in another namespace, if a ReferenceGrant there allows it")
	flags.BoolVar(&t.ImmediateOnNodes, "node-deployment-immediate-binding", true,
		"with node deployment, let the nodes provision claims with immediate binding")
}
