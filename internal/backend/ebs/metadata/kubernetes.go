package metadata

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// NodeObject reads this machine's Node object.
type NodeObject interface {
	// Node returns the current spec.providerID and labels.
	Node(ctx context.Context) (providerID string, labels map[string]string, err error)
}

// Labels of a Node. The first three are well-known (kubernetes.io, "Well-Known
// Labels"). The controller writes the last two (--label-nodes), under the names of the AWS
// EBS CSI driver's metadata labeler.
const (
	labelType       = "node.kubernetes.io/instance-type"
	labelZone       = "topology.kubernetes.io/zone"
	labelRegion     = "topology.kubernetes.io/region"
	labelZoneID     = "topology.k8s.aws/zone-id"
	LabelInterfaces = "ebs.csi.aws.com/enis-count"
	LabelVolumes    = "ebs.csi.aws.com/non-csi-ebs-volumes-count"
)

// Kubernetes reads the Node object. It has the number of network interfaces only if the
// label is set.
type Kubernetes struct {
	Object NodeObject
	// Labelled reports that the controller sets the label, maybe after the node's process
	// has started. Until then the instance has its primary interface only.
	Labelled bool
}

// Name is "kubernetes", or "metadata-labeler" for labelled nodes.
func (k Kubernetes) Name() string {
	if k.Labelled {
		return "metadata-labeler"
	}
	return "kubernetes"
}

// Instance reads the values that the cloud's controller wrote into the Node.
func (k Kubernetes) Instance(ctx context.Context) (Instance, error) {
	providerID, labels, err := k.Object.Node(ctx)
	if err != nil {
		return Instance{}, err
	}
	id, zone, ok := ParseProviderID(providerID)
	switch {
	case strings.Contains(providerID, "/hyperpod-"):
		return Instance{}, fmt.Errorf("%w: spec.providerID of the Node is %q; nodes of SageMaker HyperPod are not served: "+
			"keep the driver off nodes with the label sagemaker.amazonaws.com/compute-type: hyperpod", backend.ErrPrecondition, providerID)
	case !ok:
		return Instance{}, fmt.Errorf("%w: spec.providerID of the Node is %q; that of an EC2 instance is like aws:///us-east-1a/i-0123456789abcdef0",
			backend.ErrPrecondition, providerID)
	}
	found := Instance{
		ID: id, Type: labels[labelType], Zone: cmp.Or(labels[labelZone], zone), Region: labels[labelRegion],
		ZoneID: labels[labelZoneID], Source: k.Name(),
	}
	k.read(&found, labels)
	if found.Zone == "" {
		return Instance{}, fmt.Errorf("%w: the Node has no label %s; the cloud's controller writes it",
			backend.ErrPrecondition, labelZone)
	}
	return found, nil
}

// ParseProviderID splits the provider ID of an EC2 instance, such as
// aws:///us-east-1a/i-0123456789abcdef0. The zone is "" if the ID lacks it.
func ParseProviderID(providerID string) (id, zone string, ok bool) {
	rest, isAWS := strings.CutPrefix(providerID, "aws://")
	id, zone = path.Base(rest), path.Base(path.Dir(rest))
	if zone == "/" || zone == "." {
		zone = ""
	}
	return id, zone, isAWS && instanceID.MatchString(id)
}

// Count reads the labels again.
func (k Kubernetes) Count(ctx context.Context, i *Instance) error {
	_, labels, err := k.Object.Node(ctx)
	if err == nil {
		k.read(i, labels)
	}
	return err
}

// read reads the labels that the controller sets.
func (k Kubernetes) read(i *Instance, labels map[string]string) {
	i.Interfaces, i.Volumes = countOf(labels[LabelInterfaces]), countOf(labels[LabelVolumes])
	if k.Labelled {
		i.Interfaces = max(i.Interfaces, 1)
	}
}

func countOf(label string) int {
	count, err := strconv.Atoi(label)
	if err != nil {
		return 0
	}
	return max(count, 0)
}
