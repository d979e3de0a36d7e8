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

const (
	// unservedEvery is how often the intents that no process completes are listed, with
	// jitter.
	unservedEvery = time.Hour
	// electedEvery is how often a process asks whether it is elected to list them.
	electedEvery = time.Minute
)

// watchUnserved counts the intents that no process completes: of nodes that are gone, and
// of an earlier central deployment. A central process completes all.
func (c *Controller) watchUnserved(ctx context.Context) {
	if c.env.Scope.Central() {
		return
	}
	for {
		pause := electedEvery
		if c.listsUnserved() {
			pause = unservedEvery/2 + rand.N(unservedEvery)
			if err := c.countUnserved(ctx); err != nil {
				c.log.WarnContext(ctx, "the intents of other nodes are unknown", "error", err)
			}
			if err := c.intents.RemoveLeft(ctx, func(node string) (bool, error) { return c.served(ctx, node) }); err != nil {
				c.log.WarnContext(ctx, "ConfigMaps without intents that other processes left are not removed", "error", err)
			}
		} else {
			c.unserved.Store(0)
		}
		if !work.Sleep(ctx, pause) {
			return
		}
	}
}

// listsUnserved reports whether this process lists the intents of all nodes. With
// Scope.Labelled the elected one alone does, if one is elected among the nodes: a list for
// each node grows with the square of their number.
func (c *Controller) listsUnserved() bool {
	return !c.env.Scope.Labelled || c.options.Elected == nil || c.options.Elected()
}

func (c *Controller) countUnserved(ctx context.Context) error {
	waiting, err := c.intents.Unserved(ctx, func(node string) (bool, error) { return c.served(ctx, node) })
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, completedSoon)
	c.unserved.Store(int64(len(waiting)))
	for _, unserved := range waiting {
		about := []any{"configmap", unserved.ConfigMap, "entry", unserved.Key, "namespace", c.env.Intents, "node", unserved.Node}
		if unserved.Err != nil { // the volume and the claim are unknown
			about = append(about, "error", unserved.Err)
		} else {
			about = append(about, "volume", unserved.Intent.Volume.Name, "claim", unserved.Intent.claimKey())
			c.reportUnserved(unserved)
		}
		c.log.WarnContext(ctx, "no process completes an intent: start its node again; or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; or delete the volume and the entry by hand", about...)
	}
	return nil
}

// completedSoon reports whether the only segments, or the only instance of the driver, show
// that some node completes an intent. Such an intent counts as unserved after an hour.
func completedSoon(unserved intent.Unserved[volumeIntent]) bool {
	if unserved.Err != nil || unserved.Node != "" || time.Since(unserved.Intent.Since) > unservedEvery {
		return false
	}
	requirement, err := unserved.Intent.Topology.Requirement()
	if err != nil {
		return false
	}
	_, located := lifecycle.OnlyPlace(requirement)
	_, instance := lifecycle.OnlyInstance(unserved.Intent.Instances)
	return located || instance && unserved.Intent.Unsaved
}

// reportUnserved writes an event on the claim of an intent that no process
// completes. The node of the first rank writes it, or the elected process.
func (c *Controller) reportUnserved(unserved intent.Unserved[volumeIntent]) {
	stub := unserved.Intent.claimStub()
	first := c.csiNodes != nil && c.rank(stub.UID) == 0
	if !first && (c.options.Elected == nil || !c.options.Elected()) {
		return
	}
	from := "a controller for all nodes"
	if id, ok := lifecycle.OnlyInstance(unserved.Intent.Instances); ok {
		from += fmt.Sprintf(" with the driver of node_id %q", id)
	}
	if unserved.Node != "" {
		from = fmt.Sprintf("node %q", unserved.Node)
	}
	c.warn(stub, reasonFailed,
		"volume %q was being created by %s, which no longer runs the driver: start it again, or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; if the volume does not exist any more, remove entry %s of ConfigMap %s in namespace %s",
		unserved.Intent.Volume.Name, from, unserved.Key, unserved.ConfigMap, c.env.Intents)
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
