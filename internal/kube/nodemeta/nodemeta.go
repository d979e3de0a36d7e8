// Package nodemeta reads what the cluster knows of the machine that this
// process runs on, for nodes that cannot reach their cloud's metadata service:
// spec.providerID and the labels of the Node object, which the cloud's own
// controller writes (kubernetes.io, "Well-Known Labels, Annotations and
// Taints"). What they mean is for the backend to say.
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

// firstPause and longestPause are between two looks at a Node that is not
// filled in yet, or could not be read.
const firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second

// errEmpty is what a Node says that the cloud's controller has not seen.
var errEmpty = errors.New("its spec.providerID is empty: the cloud's controller has not filled it in, or the cluster has none")

// Getter reads Nodes; api.CoreV1.Nodes is one.
type Getter interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)
}

// Reader reads one Node.
type Reader struct {
	Nodes Getter
	// Name is that of this machine's Node.
	Name string
}

// Node returns spec.providerID and the labels. A Node without a providerID is
// looked at again until ctx ends, as is an API server that does not answer: the
// kubelet makes the Node, and the cloud's controller fills it in afterwards, all
// at once. A Node that does not exist, or may not be read, is an error at once.
func (r Reader) Node(ctx context.Context) (providerID string, labels map[string]string, err error) {
	if r.Name == "" {
		return "", nil, errors.New("the name of this machine's Node is not known; give --node-name or $NODE_NAME")
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		node, err := r.look(ctx)
		if err == nil {
			return node.Spec.ProviderID, node.Labels, nil
		}
		if final(err) || !work.Sleep(ctx, pause) {
			return "", nil, r.explain(err)
		}
	}
}

func (r Reader) look(ctx context.Context) (*corev1.Node, error) {
	node, err := r.Nodes.Get(ctx, r.Name, metav1.GetOptions{})
	if err == nil && node.Spec.ProviderID == "" {
		return nil, errEmpty
	}
	return node, err
}

// final tells which errors waiting does not heal.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

func (r Reader) explain(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no Node %q; give the name of this machine's Node with --node-name or $NODE_NAME: %w", r.Name, err)
	case final(err):
		return fmt.Errorf("this service account may not read the Node %q; give it the right to get nodes: %w", r.Name, err)
	}
	return fmt.Errorf("Node %q: %w", r.Name, err)
}
