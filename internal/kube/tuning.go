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
	ImmediateOnNodes, HandleInUse bool
	ExtraModifyMetadata           bool
	SnapshotNames, GroupNames     claim.Naming
	ReconcileSync                 time.Duration
	MaxEntries                    int32
	HealthInterval                time.Duration
}

// Bind declares the flags.
func (t *Tuning) Bind(flags *pflag.FlagSet) {
	flags.BoolVar(&t.StrictTopology, "strict-topology", false, "make a volume only where its selected node is, not in any place the driver could reach")
	flags.BoolVar(&t.ImmediateTopology, "immediate-topology", true, "tell the driver all places for a claim without a selected node")
	flags.BoolVar(&t.Capacity, "enable-capacity", false, "keep CSIStorageCapacity objects for the scheduler")
	flags.BoolVar(&t.CapacityForImmediate, "capacity-for-immediate-binding", false, "keep them for classes with immediate binding, too")
	flags.DurationVar(&t.CapacityPoll, "capacity-poll-interval", capacity.DefaultPoll, "how often the driver is asked for its capacity")
	flags.IntVar(&t.CapacityOwnerLevel, "capacity-ownerref-level", capacity.OwnerController, "who owns them: -1 nobody, 0 the pod, 1 its controller, 2 its Deployment")
	flags.BoolVar(&t.ExtraMetadata, "extra-create-metadata", false, "tell the driver the names of claim and volume, or of snapshot and content")
	flags.StringVar(&t.DefaultFSType, "default-fstype", "", "filesystem of volumes whose class names none")
	flags.StringVar(&t.VolumeNamePrefix, "volume-name-prefix", "pvc", "how the names of volumes begin")
	flags.IntVar(&t.VolumeNameUUIDLength, "volume-name-uuid-length", -1, "digits of the claim's UID in a volume's name; below 0 all, with dashes")
	flags.BoolVar(&t.PublishReadOnly, "controller-publish-readonly", false, "mark volumes of ReadOnlyMany claims as read-only")
	flags.BoolVar(&t.KeepVolumeMode, "prevent-volume-mode-conversion", true, "refuse to restore a snapshot in another volume mode unless its content allows it")
	flags.BoolVar(&t.ImmediateOnNodes, "node-deployment-immediate-binding", true, "where each node acts for itself, let nodes take claims with immediate binding")
	flags.BoolVar(&t.HandleInUse, "handle-volume-inuse-error", true, "after a driver refused to grow a volume in use, call it again only when it is not")
	flags.BoolVar(&t.ExtraModifyMetadata, "extra-modify-metadata", false, "tell the driver the names of claim and volume when a volume is modified")
	flags.StringVar(&t.SnapshotNames.Prefix, "snapshot-name-prefix", "snapshot", "how the names of snapshots begin")
	flags.IntVar(&t.SnapshotNames.UIDLength, "snapshot-name-uuid-length", -1, "digits of the UID in a snapshot's name; below 0 all, with dashes")
	flags.StringVar(&t.GroupNames.Prefix, "groupsnapshot-name-prefix", "groupsnapshot", "how the names of group snapshots begin")
	flags.IntVar(&t.GroupNames.UIDLength, "groupsnapshot-name-uuid-length", -1, "digits of the UID in a group snapshot's name; below 0 all, with dashes")
	flags.DurationVar(&t.ReconcileSync, "reconcile-sync", attach.DefaultReconcile, "how often attachments are compared with what the driver lists; below 0 never")
	flags.Int32Var(&t.MaxEntries, "max-entries", 0, "entries of a page of ListVolumes; 0 leaves it to the driver")
	flags.DurationVar(&t.HealthInterval, "monitor-interval", health.DefaultInterval, "how often the driver is asked for the health of volumes")
}
