// Package nodemeta reads what the cluster knows of the machine that a node runs
// on: the instance from spec.providerID, the rest from the well-known labels,
// all written by the cloud's own controller (kubernetes.io, "Well-Known Labels,
// Annotations and Taints"). It is for nodes that cannot reach the instance
// metadata service.
package nodemeta

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// firstPause and longestPause are between two looks at a Node that is not
	// complete, or could not be read.
	firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

	// The labels of driver "ebs.csi.aws.com" that a labeller may set on nodes
	// which cannot see their own interfaces and volumes (reference driver,
	// docs/metadata.md, "Metadata labeler").
	interfacesLabel = "/enis-count"
	volumesLabel    = "/non-csi-ebs-volumes-count"

	// oldZoneLabel is the zone's label from before the well-known one, of drivers
	// that still set it.
	oldZoneLabel = "/zone"
)

// Node is a machine as its Node object tells.
type Node struct {
	// InstanceID is EC2's, such as i-0123456789abcdef0.
	InstanceID string
	// InstanceType and Region are "" where the cloud's controller sets no label.
	InstanceType, Region string
	// Zone is that of the label, else of the providerID.
	Zone string
	// Interfaces and OtherVolumes are the attached network interfaces and the
	// volumes that no CSI driver attached, as labelled; -1 where they are not.
	Interfaces, OtherVolumes int
}

// Getter reads Nodes; clientset.CoreV1().Nodes() is one.
type Getter interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

var _ Getter = corev1client.NodeInterface(nil)

// Read reads the Node of that name. A Node whose instance or zone is not known
// yet is looked at again until ctx ends: the cloud's controller fills it in
// after the kubelet made it. A Node that does not exist, or may not be read, is
// an error at once.
func Read(ctx context.Context, nodes Getter, name, driver string) (Node, error) {
	if name == "" {
		return Node{}, fmt.Errorf("metadata from Kubernetes: the name of this node is not known; give --node-name or $NODE_NAME")
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		found, err := look(ctx, nodes, name, driver)
		if err == nil || final(err) {
			return found, explain(name, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Node{}, explain(name, err)
		}
	}
}

func look(ctx context.Context, nodes Getter, name, driver string) (Node, error) {
	object, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Node{}, err
	}
	return parse(object, driver)
}

// final tells which errors waiting does not heal.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func explain(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("metadata from Kubernetes: there is no Node %q; give the name of this machine's Node with --node-name or $NODE_NAME: %w", name, err)
	case final(err):
		return fmt.Errorf("metadata from Kubernetes: this service account may not read the Node %q; give it the right to get nodes: %w", name, err)
	}
	return fmt.Errorf("metadata from Kubernetes: Node %q: %w", name, err)
}

func parse(object *corev1.Node, driver string) (Node, error) {
	zone, instance, err := provider(object.Spec.ProviderID)
	if err != nil {
		return Node{}, err
	}
	labels := object.Labels
	n := Node{
		InstanceID: instance, InstanceType: labels[corev1.LabelInstanceTypeStable], Region: labels[corev1.LabelTopologyRegion],
		Zone: first(labels[corev1.LabelTopologyZone], labels["topology."+driver+oldZoneLabel], zone),
	}
	if n.Zone == "" {
		return Node{}, fmt.Errorf("it has no label %s, and its providerID names no zone", corev1.LabelTopologyZone)
	}
	if n.Interfaces, err = count(labels, driver+interfacesLabel); err != nil {
		return Node{}, err
	}
	n.OtherVolumes, err = count(labels, driver+volumesLabel)
	return n, err
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}

// ec2Provider is aws:///ZONE/INSTANCE, as the AWS cloud provider writes it; the
// zone may be missing. Instance IDs have 8 or 17 hexadecimal digits.
func ec2Provider() *regexp.Regexp {
	return regexp.MustCompile(`^aws://[^/]*/([a-z0-9-]*)/?(i-(?:[0-9a-f]{8}|[0-9a-f]{17}))$`)
}

func provider(id string) (zone, instance string, err error) {
	if id == "" {
		return "", "", fmt.Errorf("its spec.providerID is empty: the cloud's controller has not seen it, or there is none")
	}
	found := ec2Provider().FindStringSubmatch(id)
	if found == nil {
		return "", "", fmt.Errorf("its spec.providerID %q is none of an EC2 instance (aws:///ZONE/i-…)", id)
	}
	return found[1], found[2], nil
}

func count(labels map[string]string, label string) (int, error) {
	text, labelled := labels[label]
	if !labelled {
		return -1, nil
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 {
		return 0, fmt.Errorf("its label %s=%q is no number", label, text)
	}
	return number, nil
}
