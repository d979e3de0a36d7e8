package cloud

import "time"

// Volume is an EBS volume as DescribeVolumes shows it.
type Volume struct {
	ID    string // vol-…
	Type  string // gp3, io2, …
	State string // one of the Volume… constants
	// Size is in GiB, Throughput in MiB/s; IOPS and Throughput are 0 if the type has
	// none.
	Size, IOPS, Throughput int32
	Zone, ZoneID           string
	OutpostARN             string
	Encrypted, MultiAttach bool
	KMSKeyID               string
	SnapshotID             string // restored from, or ""
	SourceVolumeID         string // copied from, or ""
	Created                time.Time
	Tags                   map[string]string
	Attachments            []Attachment
}

// States of a volume (EC2 API, Volume).
const (
	VolumeCreating  = "creating"
	VolumeAvailable = "available"
	VolumeInUse     = "in-use"
	VolumeDeleting  = "deleting"
	VolumeDeleted   = "deleted"
	VolumeError     = "error"
)

// Attachment is an attachment of a volume to an instance, also while it begins or ends.
type Attachment struct {
	VolumeID, InstanceID string
	Device               string // requested name, such as /dev/xvdaa
	State                string // one of the Attachment… constants
	Since                time.Time
	Card                 int32 // index of the EBS card
}

// States of an attachment (EC2 API, VolumeAttachment). Busy means that the guest still
// uses the device.
const (
	Attaching = "attaching"
	Attached  = "attached"
	Detaching = "detaching"
	Detached  = "detached"
	Busy      = "busy"
)

// Instance has the fields of an EC2 instance that the driver needs.
type Instance struct {
	ID, Type, Zone string
	State          string // pending, running, shutting-down, terminated, stopping, stopped
	RootDevice     string // name, such as /dev/xvda
	Interfaces     int    // network interfaces that are attached, at least 1
	Devices        []InstanceDevice
}

// States of an instance (EC2 API, InstanceState).
const (
	InstancePending    = "pending"
	InstanceRunning    = "running"
	InstanceShutting   = "shutting-down"
	InstanceTerminated = "terminated"
	InstanceStopping   = "stopping"
	InstanceStopped    = "stopped"
)

// InstanceDevice is one entry of an instance's block device mapping.
type InstanceDevice struct {
	Name     string
	VolumeID string
	State    string // attaching, attached, detaching, detached
	Card     int32
}

// InstanceType has the EBS cards of an instance type.
type InstanceType struct {
	Name  string
	Cards int
}

// Modification is the most recent ModifyVolume of a volume.
type Modification struct {
	VolumeID, State, Message                 string
	TargetType                               string
	TargetSize, TargetIOPS, TargetThroughput int32
	Progress                                 int64 // percent
	Start                                    time.Time
}

// States of a modification (EC2 API, VolumeModification).
const (
	Modifying             = "modifying"
	Optimizing            = "optimizing"
	ModificationCompleted = "completed"
	ModificationFailed    = "failed"
)

// Snapshot is an EBS snapshot.
type Snapshot struct {
	ID, VolumeID string
	State        string // pending, completed, error, recoverable, recovering
	Message      string
	Progress     string // such as 45%
	Size         int32  // GiB of the volume
	Started      time.Time
	Tags         map[string]string
}

// States of a snapshot (EC2 API, Snapshot).
const (
	SnapshotPending   = "pending"
	SnapshotCompleted = "completed"
	SnapshotError     = "error"
)

// Status is a volume's status check (EC2 API, VolumeStatusItem).
type Status struct {
	VolumeID string
	State    string // ok, impaired, warning, insufficient-data
	// Details by name (io-enabled, io-performance, initialization-state).
	Details map[string]string
	Events  []string // descriptions of events that have not ended
	// InitializationProgress is in percent, Remaining the estimate of EC2; 0 if unknown.
	InitializationProgress int64
	Remaining              time.Duration
}

// Lock is the lock of a snapshot (EC2 API, LockedSnapshotsInfo).
type Lock struct {
	SnapshotID, State string
	Expires           time.Time
}

// FastRestore is the state of fast snapshot restore of a snapshot in a zone.
type FastRestore struct {
	SnapshotID, Zone, State string
}

// Zone is an availability zone.
type Zone struct {
	Name, ID, State, Type string
}
