// Package local keeps volumes as files in a pool, a directory of this machine,
// and gives them out as loop devices. Driver and host use it through package
// backend; it never formats or mounts a volume (package node does).
//
// The state on disk:
//
//	POOL/pool.json                 identity of the pool, and the node it belongs to
//	POOL/lock, lock.controller, lock.node
//	POOL/volumes/ID/volume.json    intent and facts; written by the controller half
//	POOL/volumes/ID/format.json    format mark; written by the node half
//	POOL/volumes/ID/data           the blocks
//	POOL/snapshots/ID/snapshot.json, data
//	POOL/groups/ID/group.json      a group snapshot; its members lie in snapshots/
//	POOL/trash/ID.SUFFIX           entries that are being removed
//
// A record in the state "creating" precedes everything else of its entry, so
// that the start recognises a half-made thing and finish or remove it. Removal is
// one rename into trash. IDs are hashes of the names, so that a name can have
// one ID only. Whether a volume is in use is observed (a loop device is backed
// by its file), never recorded.
//
// The two halves may run in one process or in two: each takes its own lock on
// the pool, and an operation has flock(2) on the directory of its volume.
package local

import (
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
)

// Names that COs and administrators see.
const (
	DriverName  = "local.holdfast.dev"
	TopologyKey = "topology.local.holdfast.dev/node"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30

	allocationUnit = mebibyte
	defaultSize    = gibibyte
	// ext4 with 4 KiB blocks ends files at 16 TiB (ext4(5)); one limit for all
	// pools keeps a volume movable between them.
	maximumSize = 16<<40 - allocationUnit

	defaultMaximumEphemeral = 10 * gibibyte
	defaultFreezeLimit      = 10 * time.Second
)

// Role says which half of the backend a process is.
type Role int

// The roles. Each half of a pool is taken by one process at a time.
const (
	RoleAll Role = iota
	RoleController
	RoleNode
)

// Options of a pool. Pool and NodeID must be set; the zero value of the rest
// is a sensible default.
type Options struct {
	// Pool is the directory. A missing or empty one becomes a new pool.
	Pool string
	// NodeID is this machine's name and the value of its topology segment.
	NodeID string
	Role   Role
	// Adopt takes over a pool that belongs to another node ID, as after the
	// reinstallation of the machine.
	Adopt bool
	// RequireMount refuses a pool directory that is not a mount point, so that a
	// disk that failed to mount is not mistaken for an empty pool.
	RequireMount bool
	// Overcommit is how many bytes of thin volumes are promised for each byte of
	// the pool; 0 means 1: every thin volume can be filled.
	Overcommit float64
	// Reserve is how many bytes of the pool are never promised; 0 means one part
	// in 64, at least 16 MiB and at most 1 GiB.
	Reserve int64
	// MaximumEphemeral bounds an inline volume in bytes; 0 means 10 GiB.
	MaximumEphemeral int64
	// FreezeLimit bounds how long a mounted filesystem is kept frozen for a
	// snapshot; 0 means 10 s.
	FreezeLimit time.Duration
	// PoolImage, when set, keeps the pool on an xfs filesystem in a file.
	PoolImage  *ImageOptions
	Runner     command.Runner // runs mkfs of a pool image; nil: the system
	Logger     *slog.Logger   // nil: silent
	Failpoints *failpoint.Set
}

// ImageOptions describe a pool image: one file, made into an xfs filesystem
// once and mounted at the pool directory at every start. It gives reflink to a
// machine whose own filesystem has none, at the price of a second loop layer.
type ImageOptions struct {
	Path string
	// Size in bytes at the first start. A larger size at a later start grows the
	// image; a smaller one changes nothing.
	Size int64
}

// A topology value is a label value of Kubernetes (CSI spec 1.13, "Topology").
var nodeIDForm = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)

func (o Options) withDefaults() (Options, error) {
	if o.Pool == "" {
		return o, fmt.Errorf("%w: the pool directory is not given", backend.ErrInvalid)
	}
	if !nodeIDForm.MatchString(o.NodeID) {
		return o, fmt.Errorf("%w: node ID %q: want at most 63 letters, digits, '-', '_' or '.', with a letter or digit at "+
			"both ends", backend.ErrInvalid, o.NodeID)
	}
	if o.Overcommit == 0 {
		o.Overcommit = 1
	}
	if !(o.Overcommit >= 1) || math.IsInf(o.Overcommit, 0) {
		return o, fmt.Errorf("%w: overcommit %v: want a number from 1 on", backend.ErrInvalid, o.Overcommit)
	}
	if o.Reserve < 0 || o.MaximumEphemeral < 0 || o.FreezeLimit < 0 {
		return o, fmt.Errorf("%w: reserve, maximum ephemeral size and freeze limit cannot be negative", backend.ErrInvalid)
	}
	if o.MaximumEphemeral == 0 {
		o.MaximumEphemeral = defaultMaximumEphemeral
	}
	if o.FreezeLimit == 0 {
		o.FreezeLimit = defaultFreezeLimit
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Runner == nil {
		o.Runner = command.NewSystem()
	}
	return o, nil
}

func traits() backend.Traits {
	return backend.Traits{
		DriverName:     DriverName,
		TopologyKeys:   []string{TopologyKey},
		MinimumSize:    allocationUnit,
		MaximumSize:    maximumSize,
		DefaultSize:    defaultSize,
		AllocationUnit: allocationUnit,
		AccessModes: []backend.AccessMode{
			backend.SingleNodeWriter, backend.SingleNodeReaderOnly,
			backend.SingleNodeSingleWriter, backend.SingleNodeMultiWriter,
		},
		Filesystems: []string{"ext4", "xfs", "btrfs"},
		FilesystemMinimum: map[string]int64{"ext4": minimumFor("ext4"), "xfs": minimumFor("xfs"),
			"btrfs": minimumFor("btrfs")},
		Block:             true,
		Clone:             true,
		Parameters:        []string{parameterProvisioning, parameterSectorSize},
		MutableParameters: []string{parameterProvisioning},
		OnlineExpansion:   true,
		SnapshotTopology:  true,
		LagsBehind:        true, // an interrupted creation is not found, and deleted all the same
	}
}
