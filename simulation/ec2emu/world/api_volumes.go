package world

import "time"

// Operator names a service that manages a resource.
type Operator struct {
	Principal string `ec2:"Principal"`
}

// OperatorItem is the Operator of a response.
type OperatorItem struct {
	Managed   bool   `ec2:"managed"`
	Principal string `ec2:"principal"`
}

// CreateVolumeRequest is the input of CreateVolume. Size in GiB, Throughput and
// VolumeInitializationRate in MiB/s.
type CreateVolumeRequest struct {
	DryRun                   bool               `ec2:"DryRun"`
	AvailabilityZone         string             `ec2:"AvailabilityZone"`
	AvailabilityZoneID       string             `ec2:"AvailabilityZoneId"`
	ClientToken              string             `ec2:"ClientToken"`
	Encrypted                *bool              `ec2:"Encrypted"`
	IOPS                     *int32             `ec2:"Iops"`
	KMSKeyID                 string             `ec2:"KmsKeyId"`
	MultiAttachEnabled       *bool              `ec2:"MultiAttachEnabled"`
	OutpostARN               string             `ec2:"OutpostArn"`
	Size                     *int32             `ec2:"Size"`
	SnapshotID               string             `ec2:"SnapshotId"`
	Throughput               *int32             `ec2:"Throughput"`
	VolumeInitializationRate *int32             `ec2:"VolumeInitializationRate"`
	VolumeType               string             `ec2:"VolumeType"`
	Operator                 *Operator          `ec2:"Operator"`
	TagSpecifications        []TagSpecification `ec2:"TagSpecification"`
}

// CreateVolumeResponse is the output of CreateVolume: the volume itself.
type CreateVolumeResponse struct{ Volume }

// Volume is a volume as DescribeVolumes shows it.
type Volume struct {
	VolumeID                 string             `ec2:"volumeId"`
	Size                     int32              `ec2:"size"`
	VolumeType               string             `ec2:"volumeType"`
	State                    string             `ec2:"status"`
	AvailabilityZone         string             `ec2:"availabilityZone"`
	AvailabilityZoneID       string             `ec2:"availabilityZoneId"`
	CreateTime               time.Time          `ec2:"createTime"`
	Encrypted                bool               `ec2:"encrypted"`
	IOPS                     *int32             `ec2:"iops"`
	Throughput               *int32             `ec2:"throughput"`
	SnapshotID               string             `ec2:"snapshotId"`
	SourceVolumeID           string             `ec2:"sourceVolumeId"`
	KMSKeyID                 string             `ec2:"kmsKeyId"`
	OutpostARN               string             `ec2:"outpostArn"`
	MultiAttachEnabled       bool               `ec2:"multiAttachEnabled"`
	FastRestored             *bool              `ec2:"fastRestored"`
	SSEType                  string             `ec2:"sseType"`
	VolumeInitializationRate *int32             `ec2:"volumeInitializationRate"`
	VolumeARN                string             `ec2:"volumeArn"`
	OwnerID                  string             `ec2:"ownerId"`
	Operator                 *OperatorItem      `ec2:"operator"`
	Attachments              []VolumeAttachment `ec2:"attachmentSet"`
	Tags                     []TagItem          `ec2:"tagSet"`
}

// VolumeAttachment is a volume's attachment; AttachVolume and DetachVolume
// answer it at the root.
type VolumeAttachment struct {
	VolumeID              string    `ec2:"volumeId"`
	InstanceID            string    `ec2:"instanceId"`
	Device                string    `ec2:"device"`
	State                 string    `ec2:"status"`
	AttachTime            time.Time `ec2:"attachTime"`
	DeleteOnTermination   bool      `ec2:"deleteOnTermination"`
	EBSCardIndex          *int32    `ec2:"ebsCardIndex"`
	AssociatedResource    string    `ec2:"associatedResource"`
	InstanceOwningService string    `ec2:"instanceOwningService"`
}

// CopyVolumesRequest is the input of CopyVolumes.
type CopyVolumesRequest struct {
	DryRun             bool               `ec2:"DryRun"`
	SourceVolumeID     string             `ec2:"SourceVolumeId"`
	ClientToken        string             `ec2:"ClientToken"`
	Encrypted          *bool              `ec2:"Encrypted"`
	IOPS               *int32             `ec2:"Iops"`
	KMSKeyID           string             `ec2:"KmsKeyId"`
	MultiAttachEnabled *bool              `ec2:"MultiAttachEnabled"`
	Size               *int32             `ec2:"Size"`
	Throughput         *int32             `ec2:"Throughput"`
	VolumeType         string             `ec2:"VolumeType"`
	TagSpecifications  []TagSpecification `ec2:"TagSpecification"`
}

// CopyVolumesResponse is the output of CopyVolumes.
type CopyVolumesResponse struct {
	Volumes []Volume `ec2:"volumeSet"`
}

// DeleteVolumeRequest is the input of DeleteVolume.
type DeleteVolumeRequest struct {
	DryRun   bool   `ec2:"DryRun"`
	VolumeID string `ec2:"VolumeId"`
}

// DeleteVolumeResponse is the output of DeleteVolume.
type DeleteVolumeResponse struct{ Done }

// DescribeVolumesRequest is the input of DescribeVolumes.
type DescribeVolumesRequest struct {
	DryRun                  bool     `ec2:"DryRun"`
	VolumeIDs               []string `ec2:"VolumeId"`
	Filters                 []Filter `ec2:"Filter"`
	IncludeManagedResources bool     `ec2:"IncludeManagedResources"`
	Page
}

// DescribeVolumesResponse is the output of DescribeVolumes.
type DescribeVolumesResponse struct {
	Volumes   []Volume `ec2:"volumeSet"`
	NextToken string   `ec2:"nextToken"`
}

// AttachVolumeRequest is the input of AttachVolume.
type AttachVolumeRequest struct {
	DryRun       bool   `ec2:"DryRun"`
	Device       string `ec2:"Device"`
	InstanceID   string `ec2:"InstanceId"`
	VolumeID     string `ec2:"VolumeId"`
	EBSCardIndex *int32 `ec2:"EbsCardIndex"`
}

// AttachVolumeResponse is the output of AttachVolume.
type AttachVolumeResponse struct{ VolumeAttachment }

// DetachVolumeRequest is the input of DetachVolume.
type DetachVolumeRequest struct {
	DryRun     bool   `ec2:"DryRun"`
	VolumeID   string `ec2:"VolumeId"`
	InstanceID string `ec2:"InstanceId"`
	Device     string `ec2:"Device"`
	Force      bool   `ec2:"Force"`
}

// DetachVolumeResponse is the output of DetachVolume.
type DetachVolumeResponse struct{ VolumeAttachment }

// ModifyVolumeRequest is the input of ModifyVolume.
type ModifyVolumeRequest struct {
	DryRun             bool   `ec2:"DryRun"`
	VolumeID           string `ec2:"VolumeId"`
	Size               *int32 `ec2:"Size"`
	VolumeType         string `ec2:"VolumeType"`
	IOPS               *int32 `ec2:"Iops"`
	Throughput         *int32 `ec2:"Throughput"`
	MultiAttachEnabled *bool  `ec2:"MultiAttachEnabled"`
}

// ModifyVolumeResponse is the output of ModifyVolume.
type ModifyVolumeResponse struct {
	Modification VolumeModification `ec2:"volumeModification"`
}

// VolumeModification is the most recent modification of a volume.
type VolumeModification struct {
	VolumeID                   string    `ec2:"volumeId"`
	ModificationState          string    `ec2:"modificationState"`
	StatusMessage              string    `ec2:"statusMessage"`
	TargetSize                 *int32    `ec2:"targetSize"`
	TargetIOPS                 *int32    `ec2:"targetIops"`
	TargetVolumeType           string    `ec2:"targetVolumeType"`
	TargetThroughput           *int32    `ec2:"targetThroughput"`
	TargetMultiAttachEnabled   *bool     `ec2:"targetMultiAttachEnabled"`
	OriginalSize               *int32    `ec2:"originalSize"`
	OriginalIOPS               *int32    `ec2:"originalIops"`
	OriginalVolumeType         string    `ec2:"originalVolumeType"`
	OriginalThroughput         *int32    `ec2:"originalThroughput"`
	OriginalMultiAttachEnabled *bool     `ec2:"originalMultiAttachEnabled"`
	Progress                   *int64    `ec2:"progress"`
	StartTime                  time.Time `ec2:"startTime"`
	EndTime                    time.Time `ec2:"endTime"`
}

// DescribeVolumesModificationsRequest is the input of DescribeVolumesModifications.
type DescribeVolumesModificationsRequest struct {
	DryRun                  bool     `ec2:"DryRun"`
	VolumeIDs               []string `ec2:"VolumeId"`
	Filters                 []Filter `ec2:"Filter"`
	IncludeManagedResources bool     `ec2:"IncludeManagedResources"`
	Page
}

// DescribeVolumesModificationsResponse is the output of DescribeVolumesModifications.
type DescribeVolumesModificationsResponse struct {
	Modifications []VolumeModification `ec2:"volumeModificationSet"`
	NextToken     string               `ec2:"nextToken"`
}

// BoolValue is a boolean attribute.
type BoolValue struct {
	Value *bool `ec2:"Value"`
}

// ModifyVolumeAttributeRequest is the input of ModifyVolumeAttribute.
type ModifyVolumeAttributeRequest struct {
	DryRun       bool       `ec2:"DryRun"`
	VolumeID     string     `ec2:"VolumeId"`
	AutoEnableIO *BoolValue `ec2:"AutoEnableIO"`
}

// ModifyVolumeAttributeResponse is the output of ModifyVolumeAttribute.
type ModifyVolumeAttributeResponse struct{ Done }

// DescribeVolumeStatusRequest is the input of DescribeVolumeStatus.
type DescribeVolumeStatusRequest struct {
	DryRun                  bool     `ec2:"DryRun"`
	VolumeIDs               []string `ec2:"VolumeId"`
	Filters                 []Filter `ec2:"Filter"`
	IncludeManagedResources bool     `ec2:"IncludeManagedResources"`
	Page
}

// DescribeVolumeStatusResponse is the output of DescribeVolumeStatus.
type DescribeVolumeStatusResponse struct {
	Statuses  []VolumeStatusItem `ec2:"volumeStatusSet"`
	NextToken string             `ec2:"nextToken"`
}

// VolumeStatusItem is the status of one volume.
type VolumeStatusItem struct {
	VolumeID              string                 `ec2:"volumeId"`
	AvailabilityZone      string                 `ec2:"availabilityZone"`
	AvailabilityZoneID    string                 `ec2:"availabilityZoneId"`
	OutpostARN            string                 `ec2:"outpostArn"`
	Status                VolumeStatus           `ec2:"volumeStatus"`
	Events                []VolumeEvent          `ec2:"eventsSet"`
	Actions               []VolumeAction         `ec2:"actionsSet"`
	AttachmentStatuses    []AttachmentStatus     `ec2:"attachmentStatuses"`
	InitializationDetails *InitializationDetails `ec2:"initializationStatusDetails"`
}

// VolumeStatus is the state of the checks and each check by name.
type VolumeStatus struct {
	Status  string         `ec2:"status"`
	Details []StatusDetail `ec2:"details"`
}

// StatusDetail is one check.
type StatusDetail struct {
	Name   string `ec2:"name"`
	Status string `ec2:"status"`
}

// VolumeEvent is an event of a volume.
type VolumeEvent struct {
	EventType   string    `ec2:"eventType"`
	EventID     string    `ec2:"eventId"`
	Description string    `ec2:"description"`
	NotBefore   time.Time `ec2:"notBefore"`
	NotAfter    time.Time `ec2:"notAfter"`
	InstanceID  string    `ec2:"instanceId"`
}

// VolumeAction is an action that a user may take for an event.
type VolumeAction struct {
	Code        string `ec2:"code"`
	Description string `ec2:"description"`
	EventID     string `ec2:"eventId"`
	EventType   string `ec2:"eventType"`
}

// AttachmentStatus is the performance of a volume at one instance.
type AttachmentStatus struct {
	InstanceID    string `ec2:"instanceId"`
	IOPerformance string `ec2:"ioPerformance"`
}

// InitializationDetails reports how much of a restored volume is loaded.
type InitializationDetails struct {
	InitializationType string `ec2:"initializationType"`
	Progress           *int64 `ec2:"progress"`
	// EstimatedSeconds is nil unless a rate was requested.
	EstimatedSeconds *int64 `ec2:"estimatedTimeToCompleteInSeconds"`
}
