package nodeside

import (
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

// Keys of a node's topology. PersistentVolumes from before 2024 have the second zone key.
const (
	keyZone       = "topology.kubernetes.io/zone"
	keyOldZone    = "topology.ebs.csi.aws.com/zone"
	keyOS         = "kubernetes.io/os"
	keyPartitionA = "topology.ebs.csi.aws.com/partition" // of AWS, such as aws-cn
	keyAccount    = "topology.ebs.csi.aws.com/account-id"
	keyRegion     = "topology.ebs.csi.aws.com/region"
	keyOutpost    = "topology.ebs.csi.aws.com/outpost-id"
)

// topologyOf is the topology of an instance.
func topologyOf(i metadata.Instance, system string) backend.Topology {
	topology := backend.Topology{keyZone: i.Zone, keyOldZone: i.Zone, keyOS: system}
	// arn:aws:outposts:us-west-2:123456789012:outpost/op-0123456789abcdef0
	parts := strings.SplitN(i.OutpostARN, ":", 6)
	if len(parts) != 6 {
		return topology
	}
	id, isOutpost := strings.CutPrefix(parts[5], "outpost/")
	if !isOutpost || parts[2] != "outposts" {
		return topology
	}
	topology[keyPartitionA], topology[keyRegion], topology[keyAccount], topology[keyOutpost] = parts[1], parts[3], parts[4], id
	return topology
}
