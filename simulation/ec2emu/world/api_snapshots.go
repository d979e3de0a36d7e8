package world

import "time"

// CreateSnapshotRequest is the input of CreateSnapshot.
type CreateSnapshotRequest struct {
	DryRun            bool               `ec2:"DryRun"`
	VolumeID          string             `ec2:"VolumeId"`
	Description       string             `ec2:"Description"`
	Location          string             `ec2:"Location"`
	OutpostARN        string             `ec2:"OutpostArn"`
	TagSpecifications []TagSpecification `ec2:"TagSpecification"`
}

// CreateSnapshotResponse is the output of CreateSnapshot: the snapshot itself.
type CreateSnapshotResponse struct{ Snapshot }

// Snapshot is a snapshot as DescribeSnapshots shows it.
type Snapshot struct {
	SnapshotID                string    `ec2:"snapshotId"`
	VolumeID                  string    `ec2:"volumeId"`
	State                     string    `ec2:"status"`
	StatusMessage             string    `ec2:"statusMessage"`
	StartTime                 time.Time `ec2:"startTime"`
	CompletionTime            time.Time `ec2:"completionTime"`
	Progress                  string    `ec2:"progress"`
	OwnerID                   string    `ec2:"ownerId"`
	OwnerAlias                string    `ec2:"ownerAlias"`
	VolumeSize                int32     `ec2:"volumeSize"`
	FullSizeInBytes           *int64    `ec2:"fullSnapshotSizeInBytes"`
	Description               string    `ec2:"description,always"`
	Encrypted                 bool      `ec2:"encrypted"`
	KMSKeyID                  string    `ec2:"kmsKeyId"`
	DataEncryptionKeyID       string    `ec2:"dataEncryptionKeyId"`
	StorageTier               string    `ec2:"storageTier"`
	RestoreExpiryTime         time.Time `ec2:"restoreExpiryTime"`
	OutpostARN                string    `ec2:"outpostArn"`
	AvailabilityZone          string    `ec2:"availabilityZone"`
	SSEType                   string    `ec2:"sseType"`
	TransferType              string    `ec2:"transferType"`
	CompletionDurationMinutes *int32    `ec2:"completionDurationMinutes"`
	Tags                      []TagItem `ec2:"tagSet"`
}

// InstanceSpecification selects volumes of an instance.
type InstanceSpecification struct {
	InstanceID           string   `ec2:"InstanceId"`
	ExcludeBootVolume    bool     `ec2:"ExcludeBootVolume"`
	ExcludeDataVolumeIDs []string `ec2:"ExcludeDataVolumeId"`
}

// CreateSnapshotsRequest is the input of CreateSnapshots.
type CreateSnapshotsRequest struct {
	DryRun                bool                  `ec2:"DryRun"`
	InstanceSpecification InstanceSpecification `ec2:"InstanceSpecification"`
	CopyTagsFromSource    string                `ec2:"CopyTagsFromSource"`
	Description           string                `ec2:"Description"`
	Location              string                `ec2:"Location"`
	OutpostARN            string                `ec2:"OutpostArn"`
	TagSpecifications     []TagSpecification    `ec2:"TagSpecification"`
}

// CreateSnapshotsResponse is the output of CreateSnapshots.
type CreateSnapshotsResponse struct {
	Snapshots []SnapshotInfo `ec2:"snapshotSet"`
}

// SnapshotInfo is one of a group; its state has another element name than a
// Snapshot's.
type SnapshotInfo struct {
	SnapshotID       string    `ec2:"snapshotId"`
	VolumeID         string    `ec2:"volumeId"`
	State            string    `ec2:"state"`
	VolumeSize       int32     `ec2:"volumeSize"`
	StartTime        time.Time `ec2:"startTime"`
	Progress         string    `ec2:"progress"`
	Description      string    `ec2:"description,always"`
	Encrypted        bool      `ec2:"encrypted"`
	OwnerID          string    `ec2:"ownerId"`
	OutpostARN       string    `ec2:"outpostArn"`
	AvailabilityZone string    `ec2:"availabilityZone"`
	SSEType          string    `ec2:"sseType"`
	Tags             []TagItem `ec2:"tagSet"`
}

// CopySnapshotRequest is the input of CopySnapshot.
type CopySnapshotRequest struct {
	DryRun                      bool               `ec2:"DryRun"`
	SourceRegion                string             `ec2:"SourceRegion"`
	SourceSnapshotID            string             `ec2:"SourceSnapshotId"`
	DestinationRegion           string             `ec2:"DestinationRegion"`
	PresignedURL                string             `ec2:"PresignedUrl"`
	DestinationAvailabilityZone string             `ec2:"DestinationAvailabilityZone"`
	DestinationOutpostARN       string             `ec2:"DestinationOutpostArn"`
	Encrypted                   *bool              `ec2:"Encrypted"`
	KMSKeyID                    string             `ec2:"KmsKeyId"`
	CompletionDurationMinutes   *int32             `ec2:"CompletionDurationMinutes"`
	Description                 string             `ec2:"Description"`
	TagSpecifications           []TagSpecification `ec2:"TagSpecification"`
}

// CopySnapshotResponse is the output of CopySnapshot.
type CopySnapshotResponse struct {
	SnapshotID string    `ec2:"snapshotId"`
	Tags       []TagItem `ec2:"tagSet"`
}

// DeleteSnapshotRequest is the input of DeleteSnapshot.
type DeleteSnapshotRequest struct {
	DryRun     bool   `ec2:"DryRun"`
	SnapshotID string `ec2:"SnapshotId"`
}

// DeleteSnapshotResponse is the output of DeleteSnapshot.
type DeleteSnapshotResponse struct{ Done }

// DescribeSnapshotsRequest is the input of DescribeSnapshots.
type DescribeSnapshotsRequest struct {
	DryRun       bool     `ec2:"DryRun"`
	SnapshotIDs  []string `ec2:"SnapshotId"`
	Owners       []string `ec2:"Owner"`
	RestorableBy []string `ec2:"RestorableBy"`
	Filters      []Filter `ec2:"Filter"`
	Page
}

// DescribeSnapshotsResponse is the output of DescribeSnapshots.
type DescribeSnapshotsResponse struct {
	Snapshots []Snapshot `ec2:"snapshotSet"`
	NextToken string     `ec2:"nextToken"`
}

// LockSnapshotRequest is the input of LockSnapshot. LockDuration in days,
// CoolOffPeriod in hours.
type LockSnapshotRequest struct {
	DryRun         bool       `ec2:"DryRun"`
	SnapshotID     string     `ec2:"SnapshotId"`
	LockMode       string     `ec2:"LockMode"`
	LockDuration   *int32     `ec2:"LockDuration"`
	ExpirationDate *time.Time `ec2:"ExpirationDate"`
	CoolOffPeriod  *int32     `ec2:"CoolOffPeriod"`
}

// LockSnapshotResponse is the output of LockSnapshot.
type LockSnapshotResponse struct{ SnapshotLock }

// SnapshotLock is the lock of a snapshot.
type SnapshotLock struct {
	SnapshotID             string    `ec2:"snapshotId"`
	LockState              string    `ec2:"lockState"`
	LockDuration           *int32    `ec2:"lockDuration"`
	CoolOffPeriod          *int32    `ec2:"coolOffPeriod"`
	CoolOffPeriodExpiresOn time.Time `ec2:"coolOffPeriodExpiresOn"`
	LockCreatedOn          time.Time `ec2:"lockCreatedOn"`
	LockExpiresOn          time.Time `ec2:"lockExpiresOn"`
	LockDurationStartTime  time.Time `ec2:"lockDurationStartTime"`
}

// UnlockSnapshotRequest is the input of UnlockSnapshot.
type UnlockSnapshotRequest struct {
	DryRun     bool   `ec2:"DryRun"`
	SnapshotID string `ec2:"SnapshotId"`
}

// UnlockSnapshotResponse is the output of UnlockSnapshot.
type UnlockSnapshotResponse struct {
	SnapshotID string `ec2:"snapshotId"`
}

// DescribeLockedSnapshotsRequest is the input of DescribeLockedSnapshots.
type DescribeLockedSnapshotsRequest struct {
	DryRun      bool     `ec2:"DryRun"`
	SnapshotIDs []string `ec2:"SnapshotId"`
	Filters     []Filter `ec2:"Filter"`
	Page
}

// DescribeLockedSnapshotsResponse is the output of DescribeLockedSnapshots.
type DescribeLockedSnapshotsResponse struct {
	Snapshots []LockedSnapshot `ec2:"snapshotSet"`
	NextToken string           `ec2:"nextToken"`
}

// LockedSnapshot is a lock and the owner of its snapshot.
type LockedSnapshot struct {
	SnapshotLock
	OwnerID string `ec2:"ownerId"`
}

// EnableFastSnapshotRestoresRequest is the input of EnableFastSnapshotRestores.
type EnableFastSnapshotRestoresRequest struct {
	DryRun              bool     `ec2:"DryRun"`
	AvailabilityZones   []string `ec2:"AvailabilityZone"`
	AvailabilityZoneIDs []string `ec2:"AvailabilityZoneId"`
	SourceSnapshotIDs   []string `ec2:"SourceSnapshotId"`
}

// EnableFastSnapshotRestoresResponse is the output of EnableFastSnapshotRestores.
type EnableFastSnapshotRestoresResponse struct{ FastRestoreOutcome }

// DisableFastSnapshotRestoresRequest is the input of DisableFastSnapshotRestores.
type DisableFastSnapshotRestoresRequest struct {
	DryRun              bool     `ec2:"DryRun"`
	AvailabilityZones   []string `ec2:"AvailabilityZone"`
	AvailabilityZoneIDs []string `ec2:"AvailabilityZoneId"`
	SourceSnapshotIDs   []string `ec2:"SourceSnapshotId"`
}

// DisableFastSnapshotRestoresResponse is the output of DisableFastSnapshotRestores.
type DisableFastSnapshotRestoresResponse struct{ FastRestoreOutcome }

// FastRestoreOutcome is a successful answer, even if every zone failed.
type FastRestoreOutcome struct {
	Successful   []FastRestore        `ec2:"successful"`
	Unsuccessful []FastRestoreFailure `ec2:"unsuccessful"`
}

// FastRestore is the state of fast restore of a snapshot in a zone.
type FastRestore struct {
	SnapshotID            string    `ec2:"snapshotId"`
	AvailabilityZone      string    `ec2:"availabilityZone"`
	AvailabilityZoneID    string    `ec2:"availabilityZoneId"`
	State                 string    `ec2:"state"`
	StateTransitionReason string    `ec2:"stateTransitionReason"`
	OwnerID               string    `ec2:"ownerId"`
	EnablingTime          time.Time `ec2:"enablingTime"`
	OptimizingTime        time.Time `ec2:"optimizingTime"`
	EnabledTime           time.Time `ec2:"enabledTime"`
	DisablingTime         time.Time `ec2:"disablingTime"`
	DisabledTime          time.Time `ec2:"disabledTime"`
}

// FastRestoreFailure has the errors of one snapshot.
type FastRestoreFailure struct {
	SnapshotID string                 `ec2:"snapshotId"`
	Errors     []FastRestoreZoneError `ec2:"fastSnapshotRestoreStateErrorSet"`
}

// FastRestoreZoneError is the error of one zone.
type FastRestoreZoneError struct {
	AvailabilityZone   string         `ec2:"availabilityZone"`
	AvailabilityZoneID string         `ec2:"availabilityZoneId"`
	Error              FastStateError `ec2:"error"`
}

// FastStateError is a code and its text.
type FastStateError struct {
	Code    string `ec2:"code"`
	Message string `ec2:"message"`
}

// DescribeFastSnapshotRestoresRequest is the input of DescribeFastSnapshotRestores.
type DescribeFastSnapshotRestoresRequest struct {
	DryRun  bool     `ec2:"DryRun"`
	Filters []Filter `ec2:"Filter"`
	Page
}

// DescribeFastSnapshotRestoresResponse is the output of DescribeFastSnapshotRestores.
type DescribeFastSnapshotRestoresResponse struct {
	Restores  []FastRestore `ec2:"fastSnapshotRestoreSet"`
	NextToken string        `ec2:"nextToken"`
}
