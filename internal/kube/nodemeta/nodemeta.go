// Package nodemeta reads spec.providerID and the labels of this machine's Node, which
// the cloud's controller writes (kubernetes.io, "Well-Known Labels, Annotations and
// Taints"). It is for nodes that cannot reach their cloud's metadata service. The
// backend interprets the values.
package nodemeta

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// firstPause and longestPause limit the backoff between two reads of a Node.
const firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

// errEmpty reports a Node that the cloud's controller has not initialised.
var errEmpty = errors.New("its spec.providerID is empty: " +
	"the cloud's controller has not initialised the node, or the cluster has no such controller")

// Getter reads Nodes; api.CoreV1.Nodes is one.
type Getter interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

// Reader reads one Node.
type Reader struct {
	Nodes Getter
	// Name is the name of this machine's Node.
	Name string
}

// Node returns spec.providerID and the labels. It retries until ctx ends while the
// Node has no providerID or the API server does not answer: the kubelet creates the
// Node, and the cloud's controller writes all of these fields later in one update. A
// Node that does not exist or that the process may not read is an error at once.
func (r Reader) Node(ctx context.Context) (providerID string, labels map[string]string, err error) {
	if r.Name == "" {
		return "", nil, errors.New("the name of this machine's Node is not known; give --node-name or $NODE_NAME")
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		node, err := r.read(ctx)
		if err == nil {
			return node.Spec.ProviderID, node.Labels, nil
		}
		if final(err) || !work.Sleep(ctx, pause) {
			return "", nil, r.explain(err)
		}
	}
}

func (r Reader) read(ctx context.Context) (*corev1.Node, error) {
	node, err := r.Nodes.Get(ctx, r.Name, metav1.GetOptions{})
	if err == nil && node.Spec.ProviderID == "" {
		return nil, errEmpty
	}
	return node, err
}

// final reports whether a retry cannot succeed.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func (r Reader) explain(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("Node %q does not exist; give the name of this machine's Node with --node-name or $NODE_NAME: %w",
			r.Name, err)
	case final(err):
		return fmt.Errorf("this service account may not read the Node %q; give it the right to get nodes: %w", r.Name, err)
	}
	return fmt.Errorf("Node %q: %w", r.Name, err)
}
