// Package provision creates volumes for PersistentVolumeClaims and deletes those
// of released PersistentVolumes, as external-provisioner does, with the same names, keys
// and events.
//
// A volume is never known to this process's memory only. Before CreateVolume is called,
// an intent with the whole request and the PersistentVolume is written (package intent).
// This process or the next one repeats the call from the intent until the driver's answer
// is final. The intent is removed when the PersistentVolume exists or the volume does not.
package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/kube/unlabelled"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// Topology returns from where the volume for a claim must be reachable
// (*topology.Tracker).
type Topology interface {
	Requirement(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, selectedNode string) (*csi.TopologyRequirement, error)
}

// Observer is notified of what changes the available capacity (capacity objects).
// Its methods must not block.
type Observer interface {
	Created(class string, topologies []*csi.Topology)
	Failed(class string)
	Deleted(pv *corev1.PersistentVolume)
}

// Options of the provisioner; the flags of external-provisioner.
type Options struct {
	// VolumeNamePrefix, "pvc" if empty, begins the volumes' names.
	VolumeNamePrefix string
	// VolumeNameUUIDLength, if above zero, is how many characters of the claim's
	// UID without dashes follow the prefix; else the whole UID does.
	VolumeNameUUIDLength int
	// DefaultFSType is the filesystem of classes that name none; "" lets the driver choose.
	DefaultFSType string
	// ExtraCreateMetadata adds the names of claim and volume to the parameters.
	ExtraCreateMetadata bool
	// PublishReadOnly marks ReadOnlyMany volumes read-only, if the driver can.
	PublishReadOnly bool
	// AllowVolumeModeChange lets a claim restore a snapshot with another volume
	// mode without the content's annotation.
	AllowVolumeModeChange bool
	// AttachFinalizer, if set, is on each PersistentVolume from its creation, and is
	// removed with its deletion: for a process that attaches as well.
	AttachFinalizer string
	// Snapshots follows VolumeSnapshots, for drivers that restore them.
	Snapshots bool
	// CrossNamespace serves claims whose source is in another namespace, if a
	// ReferenceGrant allows that.
	CrossNamespace bool
	// Attachments keeps a volume from deletion while it is attached, for drivers
	// with PUBLISH_UNPUBLISH_VOLUME.
	Attachments bool
	// ImmediateOnNodes lets nodes serve claims with immediate binding, in a node's scope.
	// With cluster.Scope.Labelled an elected process selects the node of such a claim.
	ImmediateOnNodes bool
	// Topology may be nil for a driver without VOLUME_ACCESSIBILITY_CONSTRAINTS
	// and in a node's scope.
	Topology Topology
	Observer Observer // may be nil

	// SlowRetry, 5 min if zero, is the pause after an answer to a request that a
	// repetition does not improve (INVALID_ARGUMENT).
	SlowRetry time.Duration
	// BaseDelay, 2 s if zero, is how long each node waits for the one before it to select
	// itself for a claim with immediate binding.
	BaseDelay time.Duration
	// SourceWorkers, that of the other queues if zero, is how many sources of copies have
	// their finalizers removed at once.
	SourceWorkers int
	// CacheLag, 30 s if zero, is for how long after the start the cache may lack changes by
	// another process, and for how long after the creation of a claim, and after the watch
	// has reported it, the cache is trusted to have the claim.
	CacheLag time.Duration
	// ForgetAfter, intent.DefaultFlushAfter if zero, is how long the intent of a volume
	// with a PersistentVolume may wait to be removed together with others.
	ForgetAfter time.Duration
}

const (
	defaultSlowRetry = 5 * time.Minute
	defaultBaseDelay = 2 * time.Second
	defaultCacheLag  = 30 * time.Second
)

// Controller is the provisioner of one driver.
type Controller struct {
	env      *cluster.Env
	options  Options
	log      *slog.Logger
	metrics  *instruments
	identity string // of this run, in the volumes' attributes
	// migration translates classes of the in-tree plugin that the driver replaced. The
	// clients of env translate volumes.
	migration *migration.Translator

	claims     *cluster.Store[*corev1.PersistentVolumeClaim]
	volumes    *cluster.Store[*corev1.PersistentVolume]
	classes    *cluster.Store[*storagev1.StorageClass]
	attributes *cluster.Store[*storagev1.VolumeAttributesClass]
	attached   attached
	snapshots  *cluster.Store[*snapshotv1.VolumeSnapshot] // nil without Options.Snapshots, and with Scope.Labelled
	csiNodes   *cluster.Store[*storagev1.CSINode]         // nil without ImmediateOnNodes, and with Scope.Labelled
	grants     *cluster.Grants                            // nil without Options.CrossNamespace
	// unlabelled finds the PersistentVolumes of the driver without claim.NodeLabel; nil
	// without Scope.Labelled.
	unlabelled *unlabelled.Finder[*corev1.PersistentVolume]
	// contents say which node has a snapshot; nil without Options.Snapshots and for
	// a central process.
	contents *cluster.Store[*snapshotv1.VolumeSnapshotContent]

	intents  *intent.Store[volumeIntent]
	packer   claim.TopologyPacker
	unserved *Unserved // nil for a central process, and with Scope.Labelled
	progress *progress

	claimQueue, volumeQueue, sourceQueue *work.Queue
	started                              time.Time
}

// New returns the controller. It makes no request before Run.
func New(env *cluster.Env, o Options) *Controller {
	if o.VolumeNamePrefix == "" {
		o.VolumeNamePrefix = "pvc"
	}
	if o.SlowRetry <= 0 {
		o.SlowRetry = defaultSlowRetry
	}
	if o.CacheLag <= 0 {
		o.CacheLag = defaultCacheLag
	}
	if o.BaseDelay <= 0 {
		o.BaseDelay = defaultBaseDelay
	}
	c := &Controller{
		env: env, options: o, log: env.Logger.With("controller", "provision"), progress: newProgress(),
		identity: identity(env), migration: migration.For(env.Driver), claims: env.Set.Claims(), volumes: env.Set.Volumes(), classes: env.Set.Classes(),
		attributes: env.Set.AttributesClasses(),
	}
	c.claimQueue = env.Queue("claims", c.claimFlow)
	c.volumeQueue = env.Queue("volumes", cluster.FlowOf(c.volumes, volumeFlow))
	c.sourceQueue = env.With(cluster.Limits{Workers: o.SourceWorkers}).Queue("sources", sourceFlow)
	c.claims.Use(cluster.ClaimByUID(), cluster.ClaimBySource(), cluster.ClaimByClass(), cluster.ClaimByAttributesClass())
	if o.CrossNamespace {
		c.claims.Use(cluster.ClaimByForeignSource())
		c.grants = env.Set.Grants(c.grantsChanged)
	}
	c.volumes.Use(cluster.VolumeByHandle())
	if env.Scope.Labelled {
		c.unlabelled = unlabelled.New(env, c.volumes, claim.NodeLabel, c.ofDriver, env.LabelPolicy)
	}
	if o.Attachments {
		c.attached.store = env.Set.Attachments()
		c.attached.store.Use(cluster.AttachmentByVolume())
	}
	if o.Snapshots {
		if !env.Scope.Labelled {
			c.snapshots = env.Set.SnapshotObjects()
		}
		if !env.Scope.Central() {
			c.contents = env.Set.Contents()
		}
	}
	if o.ImmediateOnNodes && !env.Scope.Central() && !env.Scope.Labelled {
		c.csiNodes = env.Set.CSINodes()
		c.csiNodes.Use(cluster.CSINodeByDriver())
	}
	c.intents = intent.New[volumeIntent](intent.Options{
		ConfigMaps: env.Core.CoreV1().ConfigMaps(env.Intents), Driver: env.Driver, Node: env.Scope.Node,
		FlushAfter: o.ForgetAfter, Logger: c.log, Changed: c.claimQueue.Add,
	}, intent.Kind[volumeIntent]{NodeOf: c.nodeOf, Merge: merge, Split: split, Join: join})
	c.metrics = newMetrics(env.Registerer, c.intents.Len, c.quarantined)
	env.ShowOperations(c.claimQueue, c.claimOperations, provisionOperation, deleteOperation)
	env.ShowOperations(c.volumeQueue, cluster.OperationOf(c.volumes, c.volumeOperations), deleteOperation)
	if !env.Scope.Central() && !env.Scope.Labelled {
		c.unserved = c.unservedOfNode()
	}
	c.listen()
	return c
}

// identity names the run that created a volume (storage.kubernetes.io/csiProvisionerIdentity).
func identity(env *cluster.Env) string {
	text := fmt.Sprintf("%d-%s-%s", time.Now().UnixMilli(), rand.String(5), env.Driver)
	if !env.Scope.Central() {
		text += "-" + env.Scope.Node
	}
	return text
}

// Run resumes the intents of an earlier process, and works until ctx ends. It returns nil
// when all operations have ended.
func (c *Controller) Run(ctx context.Context) error {
	c.started = time.Now()
	if err := c.replay(ctx); err != nil {
		return nil // only the end of ctx ends the tries
	}
	// The writer of intents outlives the queues, whose items wait for it; but not the
	// lease, after whose loss another process acts on the intents.
	writing, stopWriting := context.WithCancelCause(context.WithoutCancel(ctx))
	abandon := func() {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			stopWriting(intent.ErrAbandoned)
		}
	}
	defer context.AfterFunc(ctx, abandon)()
	var writer errgroup.Group
	writer.Go(func() error { return c.intents.Run(writing) })
	var queues errgroup.Group
	queues.Go(func() error { return c.claimQueue.Run(ctx, c.syncClaim) })
	queues.Go(func() error { return c.volumeQueue.Run(ctx, c.syncVolume) })
	queues.Go(func() error { return c.sourceQueue.Run(ctx, c.syncSource) })
	queues.Go(func() error { c.unlabelled.Prepare(ctx); return nil })
	if c.unserved != nil {
		queues.Go(func() error { c.unserved.Run(ctx); return nil })
	}
	err := queues.Wait()
	c.unlabelled.Close()
	abandon() // the queues may have ended before the function of AfterFunc began
	stopWriting(nil)
	if last := writer.Wait(); err == nil {
		err = last
	}
	return err
}

// replay reads the intents; no claim is processed before.
func (c *Controller) replay(ctx context.Context) error {
	for pause := c.retryStart(); ; pause = min(2*pause, time.Minute) {
		err := c.intents.Load(ctx)
		if err == nil {
			break
		}
		c.log.ErrorContext(ctx, "no volume is created until the intents can be read", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	for key, pending := range c.intents.All() {
		c.log.InfoContext(ctx, "an intent is resumed", "volume", pending.Volume.Name, "claim", pending.claimKey())
		// Before any claim is served: another claim with an equal volume name must not
		// reserve it first.
		c.progress.reserve(pending.Volume.Spec.ClaimRef.UID, pending.Volume.Name)
		c.claimQueue.Add(key)
	}
	return nil
}

func (c *Controller) retryStart() time.Duration {
	if c.env.Retry.Start > 0 {
		return c.env.Retry.Start
	}
	return work.DefaultRetryStart
}

// hit passes a failpoint.
func (c *Controller) hit(name string) error { return c.env.Failpoints.Hit("provision/" + name) }
