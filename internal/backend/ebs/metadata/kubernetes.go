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
// Labels"). The metadata labeler of the AWS EBS CSI driver writes the last one.
const (
	labelType       = "node.kubernetes.io/instance-type"
	labelZone       = "topology.kubernetes.io/zone"
	labelRegion     = "topology.kubernetes.io/region"
	labelZoneID     = "topology.k8s.aws/zone-id"
	labelInterfaces = "ebs.csi.aws.com/enis-count"
)

// Kubernetes reads the Node object. It has the number of network interfaces only if an
// administrator sets the label.
type Kubernetes struct{ Object NodeObject }

// Name is "kubernetes".
func (k Kubernetes) Name() string { return "kubernetes" }

// Instance reads the values that the cloud's controller wrote into the Node.
func (k Kubernetes) Instance(ctx context.Context) (Instance, error) {
	providerID, labels, err := k.Object.Node(ctx)
	if err != nil {
		return Instance{}, err
	}
	// aws:///us-east-1a/i-0123456789abcdef0
	rest, isAWS := strings.CutPrefix(providerID, "aws://")
	id := path.Base(rest)
	if !isAWS || !instanceID.MatchString(id) {
		return Instance{}, fmt.Errorf("%w: spec.providerID of the Node is %q; that of an EC2 instance is like aws:///us-east-1a/i-0123456789abcdef0",
			backend.ErrPrecondition, providerID)
	}
	zone := path.Base(path.Dir(rest))
	if zone == "/" || zone == "." {
		zone = ""
	}
	found := Instance{
		ID: id, Type: labels[labelType], Zone: cmp.Or(labels[labelZone], zone), Region: labels[labelRegion],
		ZoneID: labels[labelZoneID], Interfaces: interfacesOf(labels), Source: k.Name(),
	}
	if found.Zone == "" {
		return Instance{}, fmt.Errorf("%w: the Node has no label %s; the cloud's controller writes it",
			backend.ErrPrecondition, labelZone)
	}
	return found, nil
}

// Interfaces reads the label again.
func (k Kubernetes) Interfaces(ctx context.Context) (int, error) {
	_, labels, err := k.Object.Node(ctx)
	return interfacesOf(labels), err
}

func interfacesOf(labels map[string]string) int {
	count, err := strconv.Atoi(labels[labelInterfaces])
	if err != nil || count < 0 {
		return 0
	}
	return count
}
