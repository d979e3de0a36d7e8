package provision

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// unservedEvery is how often a node lists the intents that no process completes.
// Every node does, each at a time of its own.
const unservedEvery = time.Hour

// watchUnserved keeps count of intents that no process completes: of nodes that
// are gone, and of an earlier central deployment. A central process completes all.
func (c *Controller) watchUnserved(ctx context.Context) {
	if c.env.Scope.Central() {
		return
	}
	for {
		if err := c.countUnserved(ctx); err != nil {
			c.log.WarnContext(ctx, "the intents of other nodes are unknown", "error", err)
		}
		if !work.Sleep(ctx, unservedEvery/2+rand.N(unservedEvery)) {
			return
		}
	}
}

func (c *Controller) countUnserved(ctx context.Context) error {
	waiting, err := c.intents.Unserved(ctx, func(node string) (bool, error) { return c.served(ctx, node) })
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, completedSoon)
	c.unserved.Store(int64(len(waiting)))
	for _, left := range waiting {
		about := []any{"configmap", left.ConfigMap, "entry", left.Key, "namespace", c.env.Intents, "node", left.Node}
		if left.Err != nil { // the volume and the claim are unknown
			about = append(about, "error", left.Err)
		} else {
			about = append(about, "volume", left.Intent.Volume.Name, "claim", left.Intent.claimKey())
			c.reportUnserved(left)
		}
		c.log.WarnContext(ctx, "no process completes an intent: bring its node back; or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; or delete the volume and the entry by hand", about...)
	}
	return nil
}

// completedSoon reports an intent whose only place, or only instance of the driver,
// shows that a node completes it, though not which one: it counts as unserved when
// that node had an hour.
func completedSoon(left intent.Unserved[record]) bool {
	if left.Err != nil || left.Node != "" || time.Since(left.Intent.Since) > unservedEvery {
		return false
	}
	requirement, err := left.Intent.Topology.Requirement()
	if err != nil {
		return false
	}
	_, place := lifecycle.OnlyPlace(requirement)
	_, instance := lifecycle.OnlyInstance(left.Intent.Instances)
	return place || instance && left.Intent.Unsaved
}

// reportUnserved writes an event on the claim of an intent that no process
// completes. Of all nodes, the first in turn does.
func (c *Controller) reportUnserved(left intent.Unserved[record]) {
	stub := left.Intent.claimStub()
	if c.csiNodes == nil || c.rank(stub.UID) > 0 {
		return
	}
	from := "a controller for all nodes"
	if id, ok := lifecycle.OnlyInstance(left.Intent.Instances); ok {
		from += fmt.Sprintf(" with the driver of node_id %q", id)
	}
	if left.Node != "" {
		from = fmt.Sprintf("node %q", left.Node)
	}
	c.warn(stub, reasonFailed,
		"volume %q was being created by %s, which no longer runs the driver: bring it back, or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; if the volume is gone for good, remove entry %s of ConfigMap %s in namespace %s",
		left.Intent.Volume.Name, from, left.Key, left.ConfigMap, c.env.Intents)
}

// served reports whether the driver is registered on a node.
func (c *Controller) served(ctx context.Context, node string) (bool, error) {
	found, err := c.env.Core.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(found.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.env.Driver }), nil
}
