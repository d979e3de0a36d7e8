// Package attach serves a driver's VolumeAttachments, as external-attacher
// does: it publishes a volume to a node when the attach/detach controller of
// Kubernetes has made the object, and unpublishes it before the object goes.
// Volumes are attached and detached in queues of their own, so that a mass of
// the one never holds up the other.
//
// What must be undone stands on the VolumeAttachment before it is done: its
// finalizer, the node's ID, the volume's ID and the secret's name. A
// VolumeAttachment without the finalizer is not published.
//
// It never mounts, and it does not decide when to detach: that is the
// attach/detach controller's and the kubelet's business. Volumes of in-tree
// plugins that were migrated to CSI are refused with an error on the
// VolumeAttachment, since the translation is a library of Kubernetes' own that
// Holdfast does not carry.
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

// Options are what only this controller needs. The zero value is good.
type Options struct {
	// DefaultFSType is for volumes that name no filesystem (--default-fstype).
	DefaultFSType string
	// Reconcile replaces DefaultReconcile; below 0 it is off.
	Reconcile time.Duration
	// MaxEntries bounds a page of ListVolumes; 0 leaves it to the driver (--max-entries).
	MaxEntries int32
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
	turns                            turns
	forced                           forced
	running                          atomic.Bool
}

// New makes the controller and asks the caches for what it reads. Nothing is
// written or called before Run.
func New(env *cluster.Env, o Options) *Controller {
	if o.Reconcile == 0 {
		o.Reconcile = DefaultReconcile
	}
	c := &Controller{
		env: env, options: o, finalizer: claim.AttacherFinalizer(env.Driver),
		attachments: env.Set.Attachments(), volumes: env.Set.Volumes(), nodes: env.Set.CSINodes(),
		attaching: env.Queue("csi-attacher-va"), detaching: env.Queue("csi-attacher-va-detach"), protecting: env.Queue("csi-attacher-pv"),
	}
	c.attachments.Use(cluster.AttachmentByVolume(), cluster.AttachmentByNode())
	c.attachments.OnChange(c.attachmentChanged)
	c.volumes.OnChange(c.volumeChanged)
	c.nodes.OnChange(c.nodeChanged)
	c.registerMetrics()
	return c
}

// Run works until ctx ends, and waits then for what is in progress. It is
// called when the caches are filled and the lease is held, and returns nil.
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

// owns tells whether an attachment is this process's: the driver's, and of the
// node where each node runs the controllers for itself.
func (c *Controller) owns(va *storagev1.VolumeAttachment) bool {
	return va.Spec.Attacher == c.env.Driver && (c.env.Scope.Central() || va.Spec.NodeName == c.env.Scope.Node)
}

// forced are the attachments that the driver's listing contradicts: they are
// published, or unpublished, although their status says that this was done.
type forced struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

func (f *forced) set(uid types.UID, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !on {
		delete(f.uids, uid)
		return
	}
	if f.uids == nil {
		f.uids = map[types.UID]bool{}
	}
	f.uids[uid] = true
}

func (f *forced) is(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uids[uid]
}
