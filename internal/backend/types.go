package backend

import (
	"fmt"
	"time"
)

// AccessMode is how often and from where a volume may be published at once
// (CSI spec 1.13, VolumeCapability.AccessMode.Mode; same meaning, same order).
type AccessMode int

// The access modes of CSI.
const (
	AccessModeUnknown AccessMode = iota
	SingleNodeWriter
	SingleNodeReaderOnly
	MultiNodeReaderOnly
	MultiNodeSingleWriter
	MultiNodeMultiWriter
	SingleNodeSingleWriter
	SingleNodeMultiWriter
)

// String returns the name that CSI has for the mode.
func (m AccessMode) String() string {
	switch m {
	case SingleNodeWriter:
		return "SINGLE_NODE_WRITER"
	case SingleNodeReaderOnly:
		return "SINGLE_NODE_READER_ONLY"
	case MultiNodeReaderOnly:
		return "MULTI_NODE_READER_ONLY"
	case MultiNodeSingleWriter:
		return "MULTI_NODE_SINGLE_WRITER"
	case MultiNodeMultiWriter:
		return "MULTI_NODE_MULTI_WRITER"
	case SingleNodeSingleWriter:
		return "SINGLE_NODE_SINGLE_WRITER"
	case SingleNodeMultiWriter:
		return "SINGLE_NODE_MULTI_WRITER"
	}
	return "UNKNOWN"
}

// Capability is one way in which a volume is to be used.
type Capability struct {
	Mode  AccessMode
	Block bool // raw block device; otherwise a mounted filesystem
	// FSType is empty when the caller leaves the choice to the driver.
	FSType     string
	MountFlags []string
	// MountGroup is the numeric group that shall own the files (VOLUME_MOUNT_GROUP), or "".
	MountGroup string
}

// AttachSpec is the use that a volume is attached for.
type AttachSpec struct {
	Capability Capability
	ReadOnly   bool
	// Context is the volume context: that which CreateVolume of any driver returned, or
	// that of a PersistentVolume made by hand.
	Context map[string]string
}

// SizeRange is a requested size in bytes; 0 means the bound is not given.
type SizeRange struct {
	Required, Limit int64
}

// Check refuses a range that no size is in, with ErrInvalid.
func (r SizeRange) Check() error {
	if r.Required < 0 || r.Limit < 0 || (r.Limit > 0 && r.Limit < r.Required) {
		return fmt.Errorf("%w: capacity_range of %d to %d bytes", ErrInvalid, r.Required, r.Limit)
	}
	return nil
}

// Source is the source of a new volume's content; at most one field is set.
type Source struct {
	SnapshotID, VolumeID string
}

// IsZero reports whether the volume starts empty.
func (s Source) IsZero() bool { return s == Source{} }

// Topology is a set of segments: where a volume can be reached from.
type Topology map[string]string

// TopologyRequirement is where a new volume must be (one of Requisite) and
// should be (Preferred, best first).
type TopologyRequirement struct {
	Requisite, Preferred []Topology
}

// Volume is a volume of a backend. Parameters, MutableParameters
// and Source are those of its creation, so that a repeated creation can be
// compared with the first.
type Volume struct {
	ID                string
	Name              string // the name given by the CO at creation
	Size              int64  // bytes
	Parameters        map[string]string
	MutableParameters map[string]string
	Source            Source
	Context           map[string]string // volume_context: constant, without secrets
	Topology          []Topology
	// PublishedNodes is set by backends that attach.
	PublishedNodes []string
	Created        time.Time
	// Detail is the backend's own description of the volume, with which it compares or
	// changes the volume without another lookup; other packages ignore it.
	Detail any
}

// Snapshot is a copy of one volume at one instant.
type Snapshot struct {
	ID       string
	Name     string
	SourceID string // volume it is a copy of
	GroupID  string // group snapshot it belongs to, or ""
	Size     int64  // bytes a volume restored from it needs
	Created  time.Time
	Ready    bool
	// Parameters are those of its creation.
	Parameters map[string]string
	// Topology is from where volumes made of it can be reached, with
	// Traits.SnapshotTopology.
	Topology []Topology
}

// GroupSnapshot is a snapshot of several volumes at one instant.
type GroupSnapshot struct {
	ID         string
	Name       string
	Snapshots  []Snapshot
	Created    time.Time
	Ready      bool
	Parameters map[string]string
}

// VolumeSpec is a creation that passed the common rules: the size is decided,
// the source exists and fits.
type VolumeSpec struct {
	Name              string
	Size              int64 // bytes, a multiple of Traits.AllocationUnit
	Parameters        map[string]string
	MutableParameters map[string]string
	Source            Source
	Capabilities      []Capability
	Topology          *TopologyRequirement
	Secrets           map[string]string
	// Metadata are the keys csi.storage.k8s.io/… that Kubernetes adds to the
	// parameters (pvc/name, pvc/namespace, pv/name): who asks, not how the volume
	// shall be. A repeat may have others.
	Metadata map[string]string
}

// SnapshotSpec asks for a snapshot of one volume.
type SnapshotSpec struct {
	Name       string
	SourceID   string
	Parameters map[string]string
	Secrets    map[string]string
	Metadata   map[string]string // as that of VolumeSpec
	Topology   *TopologyRequirement
}

// GroupSnapshotSpec asks for a snapshot of several volumes at one instant.
type GroupSnapshotSpec struct {
	Name       string
	SourceIDs  []string
	Parameters map[string]string
	Secrets    map[string]string
}

// SnapshotFilter narrows a listing; empty fields match everything.
type SnapshotFilter struct {
	SnapshotID, SourceID string
}

// Capacity is the room for new volumes, in bytes; MaximumVolumeSize and
// MinimumVolumeSize are 0 when unknown.
type Capacity struct {
	Available, MaximumVolumeSize, MinimumVolumeSize int64
}

// HealthError classifies a problem of a volume
// (CSI spec 1.13, VolumeHealthErrorType; same values).
type HealthError int

// The kinds of problem a volume can have.
const (
	HealthUnknown HealthError = iota
	HealthDegraded
	HealthInaccessible
	HealthDataLoss
)

// HealthProblem is one named condition of a volume or of the storage; Reason
// is CamelCase and unique together with Kind.
type HealthProblem struct {
	Kind    HealthError
	Reason  string
	Message string
}
