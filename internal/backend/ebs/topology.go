package ebs

// Segments of topology: where a volume is, and where it may be.
const (
	zoneKey    = "topology.kubernetes.io/zone"
	zoneKeyOwn = "topology.ebs.csi.aws.com/zone" // of older PVs
	zoneIDKey  = "topology.k8s.aws/zone-id"      // accepted in requirements only
	outpostKey = "topology.ebs.csi.aws.com/outpost-id"
	// The rest of an Outpost's ARN.
	partitionKey = "topology.ebs.csi.aws.com/partition"
	accountKey   = "topology.ebs.csi.aws.com/account-id"
	regionKey    = "topology.ebs.csi.aws.com/region"
)
