// Package nodelabel labels Nodes with facts that the driver's backend reads from its
// cloud, for node processes that cannot reach the cloud's metadata service (package
// nodemeta). The backend chooses the labels.
package nodelabel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// Interval is the time after which the labels of a node are compared again. It is that of
// the AWS EBS CSI driver's metadata labeler.
const Interval = time.Hour

// Find returns the labels of the Node with a provider ID (spec.providerID), nil for a node
// of another cloud. used reports whether a volume is that of a PersistentVolume of the
// driver.
type Find func(ctx context.Context, providerID string, used func(volume string) bool) (map[string]string, error)

// Controller labels the Nodes.
type Controller struct {
	env     *cluster.Env
	find    Find
	nodes   *cluster.Store[*corev1.Node]
	volumes *cluster.Store[*corev1.PersistentVolume]
	queue   *work.Queue
	log     *slog.Logger
}

// New makes the controller. It calls nothing before Run.
func New(env *cluster.Env, find Find) *Controller {
	c := &Controller{
		env: env, find: find, nodes: env.Set.Nodes(), volumes: env.Set.Volumes(),
		queue: env.Queue("node-labels", nil), log: env.Logger.With("controller", "node labels"),
	}
	c.volumes.Use(cluster.VolumeByHandle())
	c.nodes.OnChange(func(old, now *corev1.Node) {
		// A node gets its provider ID after its creation.
		if now != nil && (old == nil || old.Spec.ProviderID != now.Spec.ProviderID) {
			c.queue.Add(now.Name)
		}
	})
	return c
}

// Run labels new Nodes at once and all of them each Interval, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for _, node := range c.nodes.List() {
		c.queue.Add(node.Name)
	}
	return c.queue.Run(ctx, c.sync)
}

// sync labels one Node.
func (c *Controller) sync(ctx context.Context, name string) (after time.Duration, err error) {
	node, found := c.nodes.Get(name)
	if !found || node.DeletionTimestamp != nil || node.Spec.ProviderID == "" {
		return 0, nil
	}
	labels, err := c.find(ctx, node.Spec.ProviderID, c.used)
	if err != nil {
		return 0, fmt.Errorf("labels of Node %q: %w", name, err)
	}
	change := map[string]any{}
	for key, value := range labels {
		if have, labelled := node.Labels[key]; !labelled || have != value {
			change[key] = value
		}
	}
	if len(change) == 0 {
		return Interval, nil
	}
	_, err = c.nodes.Merge(ctx, c.env.Core.CoreV1().Nodes(), node,
		map[string]any{"metadata": map[string]any{"labels": change}})
	switch {
	case errors.Is(err, cluster.ErrGone):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("label Node %q: %w", name, err)
	}
	c.log.InfoContext(ctx, "labelled a node", "node", name, "labels", change)
	return Interval, nil
}

func (c *Controller) used(volume string) bool {
	return len(c.volumes.By(cluster.VolumeByHandle(), cluster.HandleKey(c.env.Driver, volume))) > 0
}
