// Package attach serves a driver's VolumeAttachments, as external-attacher
// does: it publishes a volume to a node when the attach/detach controller of
// Kubernetes has made the object, and unpublishes it before the object is deleted.
// Attaching and detaching have queues of their own, so that many requests of one
// kind never block the other. In both, a class or a node whose calls hang leaves
// workers to the others.
//
// The intent is written on the VolumeAttachment before the driver is called: the
// finalizer, the node's ID, the volume's ID and the secret's name. A
// VolumeAttachment without the finalizer is not published.
//
// It never mounts, and it does not decide when to detach: the
// attach/detach controller and the kubelet do. Volumes of an in-tree plugin that were
// migrated to the driver are those of the driver here (package migration). Those of other
// plugins are rejected with an error on the VolumeAttachment.
package attach

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// DefaultReconcile is how often the driver's listing is compared with the
// VolumeAttachments (external-attacher's --reconcile-sync).
const DefaultReconcile = time.Minute

// Options configure the controller. The zero value is valid.
type Options struct {
	// DefaultFSType is for volumes that name no filesystem (--default-fstype).
	DefaultFSType string
	// Reconcile replaces DefaultReconcile; below 0 it is off.
	Reconcile time.Duration
	// MaxEntries bounds a page of ListVolumes; 0 leaves it to the driver (--max-entries).
	MaxEntries int32
	// Ready reports whether a node exists and is ready, for the metric of lost nodes; nil if
	// this process has no right to Node objects.
	Ready func(node string) bool
}

// Controller is the attach controller of one driver.
type Controller struct {
	env         *cluster.Env
	options     Options
	finalizer   string
	attachments *cluster.Store[*storagev1.VolumeAttachment]
	volumes     *cluster.Store[*corev1.PersistentVolume]
	nodes       *cluster.Store[*storagev1.CSINode]

	attaching, detaching, protecting *work.Queue
	locks                            keyLocks
	// forced are the attachments that the driver's listing contradicts: they are published or
	// unpublished again, although their status reports this as done.
	forced uidSet
	// released are those that this process has released by their last finalizer, until the cache
	// shows that they are gone: they are not unpublished again.
	released uidSet
	begun    begun
	tenure   tenure
	running  atomic.Bool
}

// New returns the controller and registers its caches. It writes and calls nothing before
// Run.
func New(env *cluster.Env, o Options) *Controller {
	if o.Reconcile == 0 {
		o.Reconcile = DefaultReconcile
	}
	c := &Controller{
		env: env, options: o, finalizer: claim.AttacherFinalizer(env.Driver),
		attachments: env.Set.Attachments(), volumes: env.Set.Volumes(), nodes: env.Set.CSINodes(),
	}
	c.attaching = env.Queue("csi-attacher-va", cluster.FlowOf(c.attachments, c.flow))
	c.detaching = env.Queue("csi-attacher-va-detach", cluster.FlowOf(c.attachments, c.flow))
	c.protecting = env.Queue("csi-attacher-pv", cluster.FlowOf(c.volumes, cluster.VolumeFlow))
	c.attachments.Use(cluster.AttachmentByVolume(), cluster.AttachmentByNode())
	c.attachments.OnChange(c.attachmentChanged)
	c.volumes.OnChange(c.volumeChanged)
	c.nodes.OnChange(c.nodeChanged)
	c.registerMetrics()
	c.showLostNodes()
	for queue, kind := range map[*work.Queue]string{c.attaching: attachOperation, c.detaching: detachOperation} {
		env.ShowOperations(queue, cluster.OperationOf(c.attachments, func(va *storagev1.VolumeAttachment) []cluster.Operation {
			return c.operations(va, kind)
		}), kind)
	}
	return c
}

// Run works until ctx ends, then waits for the operations in progress. The caller has
// filled the caches and holds the lease. Run returns nil.
func (c *Controller) Run(ctx context.Context) error {
	c.running.Store(true)
	defer c.running.Store(false)
	c.enqueueAll()
	var parts sync.WaitGroup
	defer parts.Wait()
	run := func(queue *work.Queue, handle func(context.Context, string) error) {
		parts.Go(func() {
			_ = queue.Run(ctx, func(ctx context.Context, key string) (time.Duration, error) { return 0, handle(ctx, key) })
		})
	}
	run(c.attaching, c.syncAttach)
	run(c.detaching, c.syncDetach)
	run(c.protecting, c.syncVolume)
	if c.options.Reconcile > 0 {
		parts.Go(func() { c.reconcileEvery(ctx, c.options.Reconcile) })
	}
	<-ctx.Done()
	return nil
}

// owns reports whether this process serves an attachment: it is the driver's,
// and of this node if each node runs its own controllers.
func (c *Controller) owns(va *storagev1.VolumeAttachment) bool {
	return va.Spec.Attacher == c.env.Driver && (c.env.Scope.Central() || va.Spec.NodeName == c.env.Scope.Node)
}

// uidSet is a set of attachments by their UIDs.
type uidSet struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

func (s *uidSet) set(uid types.UID, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		delete(s.uids, uid)
		return
	}
	if s.uids == nil {
		s.uids = map[types.UID]bool{}
	}
	s.uids[uid] = true
}

func (s *uidSet) is(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uids[uid]
}
