package cloud

import "time"

// CreateVolumeInput asks for a new volume. Zero values are left out of the
// request, and EC2 takes its default.
type CreateVolumeInput struct {
	// ClientToken makes the call repeatable: same token and parameters, same volume.
	ClientToken string
	// Zone or ZoneID, one of them.
	Zone, ZoneID string
	Type         string
	Size         int32 // GiB
	IOPS         int32
	Throughput   int32 // MiB/s
	Encrypted    *bool // nil: as the account's default says
	KMSKeyID     string
	SnapshotID   string
	// InitializationRate of a restored volume, in MiB/s.
	InitializationRate int32
	MultiAttach        bool
	OutpostARN         string
	Tags               map[string]string
}

// CopyVolumeInput asks for a copy of a volume in the same zone.
type CopyVolumeInput struct {
	ClientToken    string
	SourceVolumeID string
	Type           string
	Size           int32 // GiB
	IOPS           int32
	Throughput     int32 // MiB/s
	Encrypted      *bool
	KMSKeyID       string
	MultiAttach    bool
	Tags           map[string]string
}

// AttachInput asks for an attachment under a device name.
type AttachInput struct {
	VolumeID, InstanceID string
	Device               string
	Card                 *int32 // index of the EBS card, nil: EC2 chooses
}

// ModifyInput asks for a change; what is zero stays as it is.
type ModifyInput struct {
	VolumeID   string
	Type       string
	Size       int32 // GiB
	IOPS       int32
	Throughput int32 // MiB/s
}

// CreateSnapshotInput asks for a snapshot of one volume. With OutpostARN it
// stays on that Outpost.
type CreateSnapshotInput struct {
	VolumeID, Description, OutpostARN string
	Tags                              map[string]string
}

// LockInput asks for a lock of a snapshot: for Duration days, or until Expires.
type LockInput struct {
	SnapshotID string
	Mode       string // governance, compliance
	Duration   int32  // days
	Expires    time.Time
	CoolOff    int32 // hours
}

// SnapshotQuery narrows ListSnapshots; empty fields match everything.
type SnapshotQuery struct {
	VolumeID string
}

// Expect describes a transition, so that a wait polls first when the transition has
// probably ended.
type Expect struct {
	// Kind is what is under way ("create", "attach", "detach", "modify",
	// "snapshot"). Anything else is polled at once.
	Kind string
	// Since is when it began; zero means now.
	Since time.Time
}
