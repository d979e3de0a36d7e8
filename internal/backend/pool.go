package backend

import "context"

// Pool is the state of one pool: a store of this machine that several volumes share.
// Figures are in bytes.
type Pool struct {
	// Name is the pool's path or name, as the backend has it.
	Name string
	// Size is 0 if the pool cannot be read; the figures below are then missing, too.
	Size, Available int64
	Used            PoolUse
	// Promised is the sum of the sizes of its volumes.
	Promised int64
	// Inodes are those of the pool's filesystem, 0 if it has no fixed number.
	Inodes, InodesFree int64
	// Conditions are the problems of the pool as a whole.
	Conditions []HealthProblem
}

// PoolUse says what occupies a pool. Blocks that a volume shares with a snapshot are
// the snapshot's.
type PoolUse struct {
	Volumes, Snapshots int64
	// Partial are copies that are not complete, Trash what is deleted and not removed yet.
	Partial, Trash int64
	// Other is what the backend does not know: other files of the filesystem, its maps.
	Other int64
}

// PoolReporter is a Controller or Node with pools on this machine.
type PoolReporter interface {
	// Pools may take long: callers ask in the background, and seldom.
	Pools(ctx context.Context) []Pool
}

// NodeVolume is a volume that this machine has, or may have a device of.
type NodeVolume struct {
	ID   string
	Size int64 // bytes
	// Inline: it belongs to a pod, and is published without being staged.
	Inline bool
	// Frozen: the backend froze its filesystem for a snapshot and has not thawed it.
	Frozen  bool
	Devices []Device // those present now, without Close
}

// NodeVolumeLister is a Node that can list the volumes of this machine.
type NodeVolumeLister interface {
	// NodeVolumes may take long: callers ask in the background, and seldom.
	NodeVolumes(ctx context.Context) ([]NodeVolume, error)
}
