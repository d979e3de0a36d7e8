package cloud

import "time"

// CreateVolumeInput is a request for a new volume. Fields with the zero value are not
// sent, and EC2 uses its defaults.
type CreateVolumeInput struct {
	// ClientToken makes the call repeatable: the same token and parameters return the
	// same volume.
	ClientToken string
	// Either Zone or ZoneID.
	Zone, ZoneID string
	Type         string
	Size         int32 // GiB
	IOPS         int32
	Throughput   int32 // MiB/s
	Encrypted    *bool // nil: the account's default
	KMSKeyID     string
	SnapshotID   string
	// SourceVolumeID asks for a copy of that volume. A copy is in the zone of its source:
	// zone, Outpost, snapshot and rate are not sent for it.
	SourceVolumeID string
	// InitializationRate of a restored volume, in MiB/s.
	InitializationRate int32
	MultiAttach        bool
	OutpostARN         string
	Tags               map[string]string
}

// AttachInput is a request for an attachment under a device name.
type AttachInput struct {
	VolumeID, InstanceID string
	Device               string
	Card                 *int32 // index of the EBS card, nil: EC2 chooses
}

// ModifyInput is a request for a modification; fields with the zero value stay.
type ModifyInput struct {
	VolumeID   string
	Type       string
	Size       int32 // GiB
	IOPS       int32
	Throughput int32 // MiB/s
}

// CreateSnapshotInput is a request for a snapshot of one volume. With OutpostARN the
// snapshot is stored on that Outpost.
type CreateSnapshotInput struct {
	VolumeID, Description, OutpostARN string
	Tags                              map[string]string
}

// LockInput is a request to lock a snapshot for Duration days, or until Expires.
type LockInput struct {
	SnapshotID string
	Mode       string // governance, compliance
	Duration   int32  // days
	Expires    time.Time
	CoolOff    int32 // hours
}

// Expect describes a transition, so that a wait sends its first poll when the transition
// has probably ended.
type Expect struct {
	// Kind of the transition ("create", "attach", "detach", "modify", "snapshot"). Other
	// kinds are polled at once.
	Kind string
	// Since is when it began; zero means now.
	Since time.Time
}
