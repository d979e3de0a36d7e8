package world

import "time"

// DescribeInstancesRequest is the input of DescribeInstances.
type DescribeInstancesRequest struct {
	DryRun                  bool     `ec2:"DryRun"`
	InstanceIDs             []string `ec2:"InstanceId"`
	Filters                 []Filter `ec2:"Filter"`
	IncludeManagedResources bool     `ec2:"IncludeManagedResources"`
	Page
}

// DescribeInstancesResponse is the output of DescribeInstances.
type DescribeInstancesResponse struct {
	Reservations []Reservation `ec2:"reservationSet"`
	NextToken    string        `ec2:"nextToken"`
}

// Reservation is the instances of one launch.
type Reservation struct {
	ReservationID string     `ec2:"reservationId"`
	OwnerID       string     `ec2:"ownerId"`
	Instances     []Instance `ec2:"instancesSet"`
}

// Instance is an instance as DescribeInstances shows it.
type Instance struct {
	InstanceID       string             `ec2:"instanceId"`
	InstanceType     string             `ec2:"instanceType"`
	State            InstanceState      `ec2:"instanceState"`
	Placement        Placement          `ec2:"placement"`
	RootDeviceName   string             `ec2:"rootDeviceName"`
	RootDeviceType   string             `ec2:"rootDeviceType"`
	BlockDevices     []InstanceDevice   `ec2:"blockDeviceMapping"`
	Interfaces       []NetworkInterface `ec2:"networkInterfaceSet"`
	Hypervisor       string             `ec2:"hypervisor"`
	OutpostARN       string             `ec2:"outpostArn"`
	LaunchTime       time.Time          `ec2:"launchTime"`
	PrivateDNSName   string             `ec2:"privateDnsName"`
	PrivateIPAddress string             `ec2:"privateIpAddress"`
	ImageID          string             `ec2:"imageId"`
	Tags             []TagItem          `ec2:"tagSet"`
}

// InstanceState is a state and its code (0 pending, 16 running, 32
// shutting-down, 48 terminated, 64 stopping, 80 stopped).
type InstanceState struct {
	Code int32  `ec2:"code"`
	Name string `ec2:"name"`
}

// Placement is the location of an instance.
type Placement struct {
	AvailabilityZone   string `ec2:"availabilityZone"`
	AvailabilityZoneID string `ec2:"availabilityZoneId"`
}

// InstanceDevice is an entry of an instance's block device mapping.
type InstanceDevice struct {
	DeviceName string            `ec2:"deviceName"`
	EBS        InstanceEBSDevice `ec2:"ebs"`
}

// InstanceEBSDevice is the volume of an InstanceDevice.
type InstanceEBSDevice struct {
	VolumeID            string    `ec2:"volumeId"`
	Status              string    `ec2:"status"`
	AttachTime          time.Time `ec2:"attachTime"`
	DeleteOnTermination bool      `ec2:"deleteOnTermination"`
	EBSCardIndex        *int32    `ec2:"ebsCardIndex"`
	AssociatedResource  string    `ec2:"associatedResource"`
	VolumeOwnerID       string    `ec2:"volumeOwnerId"`
}

// NetworkInterface is a network interface of an instance.
type NetworkInterface struct {
	NetworkInterfaceID string              `ec2:"networkInterfaceId"`
	MACAddress         string              `ec2:"macAddress"`
	Attachment         InterfaceAttachment `ec2:"attachment"`
}

// InterfaceAttachment is how a network interface is attached.
type InterfaceAttachment struct {
	AttachmentID     string `ec2:"attachmentId"`
	DeviceIndex      int32  `ec2:"deviceIndex"`
	NetworkCardIndex int32  `ec2:"networkCardIndex"`
	Status           string `ec2:"status"`
}

// DescribeInstanceTypesRequest is the input of DescribeInstanceTypes.
type DescribeInstanceTypesRequest struct {
	DryRun                     bool     `ec2:"DryRun"`
	InstanceTypes              []string `ec2:"InstanceType"`
	Filters                    []Filter `ec2:"Filter"`
	IncludeUnsupportedInRegion bool     `ec2:"IncludeUnsupportedInRegion"`
	Page
}

// DescribeInstanceTypesResponse is the output of DescribeInstanceTypes.
type DescribeInstanceTypesResponse struct {
	InstanceTypes []InstanceTypeInfo `ec2:"instanceTypeSet"`
	NextToken     string             `ec2:"nextToken"`
}

// InstanceTypeInfo describes an instance type.
type InstanceTypeInfo struct {
	InstanceType string      `ec2:"instanceType"`
	BareMetal    bool        `ec2:"bareMetal"`
	Hypervisor   string      `ec2:"hypervisor"`
	EBSInfo      EBSInfo     `ec2:"ebsInfo"`
	NetworkInfo  NetworkInfo `ec2:"networkInfo"`
	// InstanceStorageSupported reports whether InstanceStorageInfo is set.
	InstanceStorageSupported bool                 `ec2:"instanceStorageSupported"`
	InstanceStorageInfo      *InstanceStorageInfo `ec2:"instanceStorageInfo"`
}

// EBSInfo has the limits of an instance type for volumes.
type EBSInfo struct {
	AttachmentLimitType   string            `ec2:"attachmentLimitType"`
	MaximumEBSAttachments *int32            `ec2:"maximumEbsAttachments"`
	MaximumEBSCards       *int32            `ec2:"maximumEbsCards"`
	Cards                 []EBSCard         `ec2:"ebsCardSet,omitempty"`
	OptimizedInfo         *EBSOptimizedInfo `ec2:"ebsOptimizedInfo"`
	NVMeSupport           string            `ec2:"nvmeSupport"`
	EncryptionSupport     string            `ec2:"encryptionSupport"`
}

// EBSCard is a card that volumes are attached to.
type EBSCard struct {
	EBSCardIndex int32 `ec2:"ebsCardIndex"`
	BaselineIOPS int32 `ec2:"baselineIops"`
	MaximumIOPS  int32 `ec2:"maximumIops"`
}

// EBSOptimizedInfo is the performance that an instance type has to volumes.
type EBSOptimizedInfo struct {
	BaselineIOPS int32 `ec2:"baselineIops"`
	MaximumIOPS  int32 `ec2:"maximumIops"`
}

// NetworkInfo has the limits of an instance type for network interfaces.
type NetworkInfo struct {
	MaximumNetworkInterfaces int32 `ec2:"maximumNetworkInterfaces"`
}

// InstanceStorageInfo has the instance store disks.
type InstanceStorageInfo struct {
	TotalSizeInGB int64          `ec2:"totalSizeInGB"`
	Disks         []InstanceDisk `ec2:"disks"`
	NVMeSupport   string         `ec2:"nvmeSupport"`
}

// InstanceDisk is a number of identical disks.
type InstanceDisk struct {
	Count    int32  `ec2:"count"`
	SizeInGB int64  `ec2:"sizeInGB"`
	Type     string `ec2:"type"`
}
