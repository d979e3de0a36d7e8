package provision

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// unservedEvery is how often the intents that no process completes are listed, with jitter.
const unservedEvery = time.Hour

// Unserved lists and reports the intents that no process completes: of nodes that are gone,
// and of an earlier central deployment. A central process completes all. With
// cluster.Scope.Labelled the process that coordinates the nodes does this for all of them,
// since a list by each grows with the square of their number; else each node does.
type Unserved struct {
	env     *cluster.Env
	log     *slog.Logger
	intents *intent.Store[volumeIntent]
	served  func(ctx context.Context, node string) (bool, error)
	// explains reports whether this process writes the event on a claim.
	explains func(claim types.UID) bool
	count    atomic.Int64 // of the last list
}

// NewUnserved is for the process that coordinates the nodes. served reports whether the
// driver is registered on a node.
func NewUnserved(env *cluster.Env, served func(node string) bool) *Unserved {
	u := &Unserved{
		env: env, log: env.Logger.With("controller", "provision"),
		intents: intent.New(intent.Options{
			ConfigMaps: env.Core.CoreV1().ConfigMaps(env.Intents), Driver: env.Driver, Observer: true,
		}, intent.Kind[volumeIntent]{
			NodeOf: func(i volumeIntent) string { return i.Node }, Merge: merge, Split: split, Join: join,
		}),
		served:   func(_ context.Context, node string) (bool, error) { return served(node), nil },
		explains: func(types.UID) bool { return true },
	}
	u.register()
	return u
}

// unservedOfNode is for a process that lists the intents of other nodes itself.
func (c *Controller) unservedOfNode() *Unserved {
	u := &Unserved{
		env: c.env, log: c.log, intents: c.intents, served: c.nodeServed,
		// Of all nodes that take turns at claims with immediate binding, one.
		explains: func(claim types.UID) bool { return c.csiNodes != nil && c.rank(claim) == 0 },
	}
	u.register()
	return u
}

func (u *Unserved) register() {
	if u.env.Registerer == nil {
		return
	}
	u.env.Registerer.MustRegister(gauge("provision_unserved_intents",
		"Volumes that were being made by a process that is gone, and that no process completes.",
		func() int { return int(u.count.Load()) }))
}

// Run lists the intents about once an hour until ctx ends.
func (u *Unserved) Run(ctx context.Context) {
	served := func(node string) (bool, error) { return u.served(ctx, node) }
	for {
		if err := u.report(ctx, served); err != nil {
			u.log.WarnContext(ctx, "the intents of other nodes are unknown", "error", err)
		}
		if err := u.intents.RemoveLeft(ctx, served); err != nil {
			u.log.WarnContext(ctx, "ConfigMaps without intents that other processes left are not removed", "error", err)
		}
		if !work.Sleep(ctx, unservedEvery/2+rand.N(unservedEvery)) {
			return
		}
	}
}

// report counts the intents that no process completes, and reports each.
func (u *Unserved) report(ctx context.Context, served func(node string) (bool, error)) error {
	waiting, err := u.intents.Unserved(ctx, served)
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, completedSoon)
	u.count.Store(int64(len(waiting)))
	for _, unserved := range waiting {
		about := []any{"configmap", unserved.ConfigMap, "entry", unserved.Key, "namespace", u.env.Intents, "node", unserved.Node}
		if unserved.Err != nil { // the volume and the claim are unknown
			about = append(about, "error", unserved.Err)
		} else {
			about = append(about, "volume", unserved.Intent.Volume.Name, "claim", unserved.Intent.claimKey())
			u.explain(unserved)
		}
		u.log.WarnContext(ctx, "no process completes an intent: start its node again; or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; or delete the volume and the entry by hand", about...)
	}
	return nil
}

// completedSoon reports whether a node completes an intent: one that runs, or the one that the
// only segments or the only instance of the driver show. Such an intent counts as unserved
// after an hour.
func completedSoon(unserved intent.Unserved[volumeIntent]) bool {
	if unserved.Err != nil || time.Since(unserved.Intent.Since) > unservedEvery {
		return false
	}
	if unserved.Node != "" {
		return unserved.Due
	}
	requirement, err := unserved.Intent.Topology.Requirement()
	if err != nil {
		return false
	}
	_, located := lifecycle.OnlyPlace(requirement)
	_, instance := lifecycle.OnlyInstance(unserved.Intent.Instances)
	return located || instance && unserved.Intent.Unsaved
}

// explain writes an event on the claim of an intent that no process completes.
func (u *Unserved) explain(unserved intent.Unserved[volumeIntent]) {
	stub := unserved.Intent.claimStub()
	if !u.explains(stub.UID) {
		return
	}
	from := "a controller for all nodes"
	if id, ok := lifecycle.OnlyInstance(unserved.Intent.Instances); ok {
		from += fmt.Sprintf(" with the driver of node_id %q", id)
	}
	if unserved.Node != "" && !unserved.Due {
		from = fmt.Sprintf("node %q", unserved.Node)
	}
	u.env.Recorder.Event(stub, corev1.EventTypeWarning, reasonFailed, cluster.Truncate(fmt.Sprintf(
		"volume %q was being created by %s, which no longer runs the driver: start it again, or, if the storage is shared by all nodes, "+
			"run the controllers centrally for a while; if the volume does not exist any more, remove entry %s of ConfigMap %s in namespace %s",
		unserved.Intent.Volume.Name, from, unserved.Key, unserved.ConfigMap, u.env.Intents)))
}

// nodeServed reports whether the driver is registered on a node.
func (c *Controller) nodeServed(ctx context.Context, node string) (bool, error) {
	found, err := c.env.Core.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(found.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == c.env.Driver }), nil
}
