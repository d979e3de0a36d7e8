// Package backend is the seam between Holdfast and the systems that store the
// data. A backend has two halves: Controller makes and changes volumes and may
// need credentials but no privilege; Node turns a volume into a block device of
// this machine and needs privilege but no credentials. What a backend offers
// beyond the minimum it shows by implementing the optional interfaces below;
// no code asks for a backend's name.
//
// Rules for every method:
//   - The context is honoured down to the last system or API call. A call that
//     was interrupted leaves work that the repeated call finds and finishes.
//   - Errors wrap one of the sentinels of this package.
//   - Methods may be called concurrently. Package guard, which wraps every
//     Controller, never lets two calls for one key run at once in this process.
//
// Package guard also owns what CSI demands of every backend alike (idempotency
// by name, size ranges, deletion of absent things); backendtest is the suite
// that proves a backend.
package backend

import "context"

// Traits are the facts of a backend that do not change while it runs.
type Traits struct {
	// DriverName is the default CSI plugin name.
	DriverName string
	// TopologyKeys are the keys that NodeInfo.Topology has; empty means no topology.
	TopologyKeys []string
	// Sizes in bytes. A requested size is rounded up to AllocationUnit; DefaultSize
	// serves a request that names none.
	MinimumSize, MaximumSize, DefaultSize, AllocationUnit int64
	// FilesystemMinimum are the bytes that a filesystem takes at least, where
	// that is more than MinimumSize. A smaller size is rounded up to it.
	FilesystemMinimum map[string]int64
	// AccessModes that a volume supports.
	AccessModes []AccessMode
	// Filesystems that may be made on a volume, the default first.
	Filesystems []string
	// WindowsFilesystems are those that only Windows nodes make; they are compared
	// without case.
	WindowsFilesystems []string
	// Block reports whether raw block use is possible.
	Block bool
	// Clone reports whether CreateVolume accepts Source.VolumeID.
	Clone bool
	// Parameters and MutableParameters are the known keys, for error messages
	// and checks by name; one that ends in "*" means all keys with that prefix.
	// CheckParameters checks the values.
	Parameters, MutableParameters []string
	// CreateFindsName: CreateVolume itself returns the complete volume that has
	// the name, equal to the request or not, and makes none in addition. Then no lookup
	// precedes it, and the guard compares the volume that it returns.
	CreateFindsName bool
	// LagsBehind: for a while, a lookup may not find a volume that exists, and it may
	// never find that of an interrupted creation. The guard calls for the deletion of a
	// volume also if the lookup does not find it.
	LagsBehind bool
	// MergesChanges: calls of Expand and Modify for one volume may run at once,
	// and the backend makes one change of them.
	MergesChanges bool
	// ReadOnlyAttachment: a volume that is attached read-only cannot be written
	// to, and is another attachment than one that can.
	ReadOnlyAttachment bool
	// JoinsAttachment: calls of Attach and Detach for one volume may run at once;
	// for one node, the latest call says what shall be.
	JoinsAttachment bool
	// ConcurrentSnapshots: a snapshot of a volume may be created while other calls
	// attach, change or snapshot it; only a deletion excludes it.
	ConcurrentSnapshots bool
	// SnapshotTopology: snapshots can be restored from the topologies in
	// Snapshot.Topology only.
	SnapshotTopology bool
	// OnlineExpansion reports whether a volume may grow while it is published.
	OnlineExpansion bool
}

// Controller is the half of a backend that makes and changes volumes.
type Controller interface {
	Traits() Traits
	// CheckParameters refuses values that are not acceptable (ErrInvalid). Keys
	// were checked against Traits before.
	CheckParameters(parameters, mutable map[string]string) error
	// CreateVolume makes a volume. The guard has established that no complete
	// volume has the name; what an interrupted creation left is the backend's to
	// finish or replace.
	CreateVolume(ctx context.Context, spec VolumeSpec) (Volume, error)
	// DeleteVolume removes a volume that exists. ErrInUse when it is attached
	// or something depends on it, in which case it is untouched.
	DeleteVolume(ctx context.Context, id string) error
	// Volume finds a complete volume by ID; ErrNotFound.
	Volume(ctx context.Context, id string) (Volume, error)
	// VolumeByName finds a complete volume by the CO's name; ErrNotFound.
	VolumeByName(ctx context.Context, name string) (Volume, error)
	// Volumes lists complete volumes with IDs after the given one, in the order
	// of their IDs, at most limit (0: all). Inline volumes are not listed.
	Volumes(ctx context.Context, after string, limit int) ([]Volume, error)
}

// ParameterNormalizer is a Controller whose parameters may be spelled in several
// ways. The guard normalizes first; everything else sees the result.
type ParameterNormalizer interface {
	// NormalizeParameters changes each key to its one spelling. Two keys that become
	// one are ErrInvalid. It changes neither map.
	NormalizeParameters(parameters, mutable map[string]string) (map[string]string, map[string]string, error)
}

// Sizer is a Controller whose bounds of size depend on the parameters.
type Sizer interface {
	// Sizes returns the smallest and largest size in bytes; 0 leaves that of Traits.
	Sizes(parameters, mutable map[string]string) (minimum, maximum int64, err error)
}

// Matcher is a Controller that can compare a volume with the request of a creation
// better than by the maps of parameters.
type Matcher interface {
	// Matches is nil, or ErrExists with what differs. Size and source were
	// compared before, the topology was not: it may have spellings too.
	Matches(volume Volume, spec VolumeSpec) error
}

// Validator is a Controller that can report which of a CO's assumptions about a volume
// are false: whether it can be used so, and was created so. What the belief
// does not name it leaves open.
type Validator interface {
	Validate(volume Volume, belief VolumeSpec) error
}

// Snapshotter is a Controller that creates snapshots and makes volumes of them.
type Snapshotter interface {
	// CheckSnapshotParameters refuses unknown keys and bad values (ErrInvalid).
	CheckSnapshotParameters(parameters map[string]string) error
	// CreateSnapshot returns when the content of the snapshot is fixed; see Snapshot.Ready.
	CreateSnapshot(ctx context.Context, spec SnapshotSpec) (Snapshot, error)
	// DeleteSnapshot removes a snapshot that exists and is in no group.
	DeleteSnapshot(ctx context.Context, id string) error
	// Snapshot finds a complete snapshot; ErrNotFound.
	Snapshot(ctx context.Context, id string) (Snapshot, error)
	SnapshotByName(ctx context.Context, name string) (Snapshot, error)
	// Snapshots lists like Controller.Volumes.
	Snapshots(ctx context.Context, filter SnapshotFilter, after string, limit int) ([]Snapshot, error)
}

// SnapshotFinisher is a Snapshotter whose snapshots need more work after their content is fixed.
type SnapshotFinisher interface {
	// FinishSnapshot does for an existing snapshot what an interrupted creation
	// may have left undone, and returns it. Repeating it is harmless.
	FinishSnapshot(ctx context.Context, snapshot Snapshot, spec SnapshotSpec) (Snapshot, error)
}

// GroupSnapshotter is a Controller that snapshots several volumes at one instant:
// all or none.
type GroupSnapshotter interface {
	CheckGroupParameters(parameters map[string]string) error
	CreateGroup(ctx context.Context, spec GroupSnapshotSpec) (GroupSnapshot, error)
	// DeleteGroup removes the group with its snapshots.
	DeleteGroup(ctx context.Context, id string) error
	Group(ctx context.Context, id string) (GroupSnapshot, error)
	GroupByName(ctx context.Context, name string) (GroupSnapshot, error)
}

// Attacher is a Controller whose volumes are attached to a machine before the
// machine can see them (ControllerPublishVolume).
type Attacher interface {
	// Attach returns the publish context. Repeating it is harmless.
	Attach(ctx context.Context, volumeID, nodeID string, spec AttachSpec) (map[string]string, error)
	// Detach succeeds when the volume is not attached; nodeID "" means everywhere.
	Detach(ctx context.Context, volumeID, nodeID string) error
}

// Expander is a Controller whose volumes can grow.
type Expander interface {
	// Expand grows a volume, as it was found a moment ago, to size bytes, a
	// multiple of Traits.AllocationUnit above its current size, and returns it.
	// The node half must then resize the device.
	Expand(ctx context.Context, volume Volume, size int64) (Volume, error)
}

// Modifier is a Controller with parameters that can change.
type Modifier interface {
	// Modify applies all parameters or none to a volume that was found a moment
	// ago; keys that are not named stay. metadata says who asks, as
	// VolumeSpec.Metadata does.
	Modify(ctx context.Context, volume Volume, mutable, metadata map[string]string) error
}

// CapacityReporter is a Controller that knows how much room is left.
type CapacityReporter interface {
	Capacity(ctx context.Context, parameters map[string]string, at Topology) (Capacity, error)
}

// HealthReporter is a Controller that can report problems of a volume.
type HealthReporter interface {
	// VolumeHealth returns no problem for a healthy volume; ErrNotFound.
	VolumeHealth(ctx context.Context, id string) ([]HealthProblem, error)
}

// NodeLabeler is a Controller that knows facts about nodes which their processes may not be
// able to read.
type NodeLabeler interface {
	// NodeLabels returns labels for the Node object with a provider ID (spec.providerID),
	// nil for a machine of another cloud. used reports whether a volume is that of a
	// PersistentVolume.
	NodeLabels(ctx context.Context, providerID string, used func(volumeID string) bool) (map[string]string, error)
}

// Reachable is a Controller or Node that can report whether it works now; the
// error names the part that is missing.
type Reachable interface {
	Probe(ctx context.Context) error
}
