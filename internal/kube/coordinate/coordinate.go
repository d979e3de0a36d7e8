// Package coordinate does what needs the whole cluster for a driver with node deployment,
// in one elected process, so that each node's process watches the objects of its node
// alone (cluster.Scope.Labelled):
//
//   - It labels claims, PersistentVolumes and snapshot contents with their node, unless
//     they have the label already: the node's process labels the PersistentVolumes that it
//     creates, an admission policy the claims, and snapshot-controller the contents.
//   - It selects a node for each claim with immediate binding and for each copy whose
//     selected node lacks the source. The selected node provisions the volume, or removes
//     the selection.
//   - It removes the selection of a node that does not exist, and the finalizers of sources
//     whose node does not exist.
//   - It writes events on claims that no node serves.
//
// Every step follows from the objects alone and is one write, guarded by the version that
// was read. A process can end between any two of them: the next one reads the objects.
package coordinate

import (
	"context"
	"log/slog"
	"strings"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	// recheckPeriod is the pause after which a claim is processed again that waits for a
	// change of a watched object.
	recheckPeriod = time.Minute
	// defaultLostAfter is how long a node may be without the driver or not ready before a
	// claim with immediate binding is given to another node. Replacing the driver's pod
	// takes seconds.
	defaultLostAfter = 2 * time.Minute
	// gather is how long claims and volumes that wait are gathered after a change of capacity
	// or nodes.
	gather = time.Second
)

// Options of the controller.
type Options struct {
	// Immediate selects nodes for claims with immediate binding
	// (--node-deployment-immediate-binding).
	Immediate bool
	// CrossNamespace serves claims whose source is in another namespace, if a
	// ReferenceGrant allows that.
	CrossNamespace bool
	// Refusals are those of this process's driver; nil for a process without one.
	Refusals Refusals
	// LostAfter replaces defaultLostAfter, and Skip defaultSkip.
	LostAfter, Skip time.Duration
}

// Refusals are the StorageClasses that a driver rejects.
type Refusals interface {
	// Refused returns why the driver rejects a class.
	Refused(class string) (why string, refused bool)
	// OnRefusal sets what is called after the driver rejected a class; nil for nothing.
	OnRefusal(call func(class string))
}

// Controller coordinates the nodes of one driver.
type Controller struct {
	env     *cluster.Env
	options Options
	log     *slog.Logger

	claims    *cluster.Store[*corev1.PersistentVolumeClaim]
	volumes   *cluster.Store[*corev1.PersistentVolume]
	classes   *cluster.Store[*storagev1.StorageClass]
	snapshots *cluster.Store[*snapshotv1.VolumeSnapshot]
	contents  contents[*snapshotv1.VolumeSnapshotContent]
	groups    contents[*groupv1.VolumeGroupSnapshotContent]
	grants    *cluster.Grants // nil without Options.CrossNamespace

	nodes      *nodes
	rooms      *rooms
	placements *placements
	events     events

	claimQueue, volumeQueue, contentQueue, groupQueue, sourceQueue *work.Queue
}

// New returns the controller. Its environment has a Set of its own, without Scope, which
// it fills with the objects of all nodes. New makes no request.
func New(env *cluster.Env, o Options) *Controller {
	if o.LostAfter <= 0 {
		o.LostAfter = defaultLostAfter
	}
	if o.Skip <= 0 {
		o.Skip = defaultSkip
	}
	c := &Controller{
		env: env, options: o, log: env.Logger.With("controller", "coordinate"),
		claims: env.Set.Claims(), volumes: env.Set.Volumes(), classes: env.Set.Classes(), snapshots: env.Set.SnapshotObjects(),
		nodes: newNodes(env), rooms: newRooms(env.Set.Capacities("")), placements: newPlacements(o.Skip), events: events{recorder: env.Recorder},
		claimQueue: env.Queue("coordinate-claims", claimFlow), volumeQueue: env.Queue("coordinate-volumes", nil),
		contentQueue: env.Queue("coordinate-contents", nil), groupQueue: env.Queue("coordinate-groupcontents", nil),
		sourceQueue: env.Queue("coordinate-sources", nil),
	}
	c.contents, c.groups = snapshotContents(env), groupContents(env)
	c.claims.Use(cluster.ClaimBySource(), cluster.ClaimByClass(), cluster.ClaimByVolumeName(), c.waitingClaims())
	c.volumes.Use(cluster.VolumeByHandle(), c.volumesByLabel(), volumesByClaim())
	if o.CrossNamespace {
		c.claims.Use(cluster.ClaimByForeignSource())
		c.grants = env.Set.Grants(c.grantsChanged)
	}
	env.ShowLostNodes(c.lostNodes)
	c.listen()
	return c
}

// claimFlow shares the workers between namespaces. The key is that of a claim.
func claimFlow(key string) work.Flow {
	namespace, _, _ := strings.Cut(key, "/")
	return work.Flow{Namespace: namespace}
}

// Run works until ctx ends. It returns nil.
func (c *Controller) Run(ctx context.Context) error {
	if refusals := c.options.Refusals; refusals != nil {
		refusals.OnRefusal(c.refused)
		defer refusals.OnRefusal(nil)
	}
	var queues errgroup.Group
	queues.Go(func() error { return c.claimQueue.Run(ctx, c.syncClaim) })
	queues.Go(func() error { return c.volumeQueue.Run(ctx, c.syncVolume) })
	queues.Go(func() error { return c.contentQueue.Run(ctx, c.syncContent) })
	queues.Go(func() error { return c.groupQueue.Run(ctx, c.syncGroup) })
	queues.Go(func() error { return c.sourceQueue.Run(ctx, c.syncSource) })
	return queues.Wait()
}

// Nodes returns on how many nodes the driver is registered.
func (c *Controller) Nodes() int { return len(c.nodes.all()) }

// Registered reports whether the driver is registered on a node.
func (c *Controller) Registered(node string) bool { return c.nodes.registered(node) }

// hit passes a failpoint.
func (c *Controller) hit(name string) error { return c.env.Failpoints.Hit("coordinate/" + name) }
