// Package resize grows the volumes of claims whose users ask for more, and
// gives them the attributes of another VolumeAttributesClass: what
// external-resizer does (KEP 1790, KEP 3751). One worker per claim does both, so
// that they never write one status against each other (external-resizer#458),
// unless the driver can combine both into one change: then each has its worker.
// Package lifecycle has the decisions.
package resize

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// conflictRetries is how often in a row a decision is repeated because
// another client wrote the claim, before the queue's pause applies.
const conflictRetries = 5

// Options configure the controller. The zero value is valid.
type Options struct {
	// Attachments: VolumeAttachments exist for the driver's volumes
	// (CSIDriver.spec.attachRequired), and show which are in use. Without it
	// they are neither listed nor watched.
	Attachments bool
	// IgnoreInUse: a driver that refused because the volume is in use is called
	// again with the ordinary pauses, used or not
	// (external-resizer's --handle-volume-inuse-error=false).
	IgnoreInUse bool
	// NoModify: the driver has no MODIFY_VOLUME. VolumeAttributesClasses are then
	// neither listed nor watched.
	NoModify bool
	// Together: the driver combines an expansion and a modification that are in
	// flight at once, so neither waits for the other here. Other
	// drivers would refuse the second call.
	Together bool
	// ExtraModifyMetadata adds the names of claim and volume to the mutable
	// parameters (external-resizer's --extra-modify-metadata).
	ExtraModifyMetadata bool
	// ModifyTimeout bounds ControllerModifyVolume; 0 means the timeout of other calls.
	ModifyTimeout time.Duration
	// InfeasiblePause replaces lifecycle.InfeasiblePause.
	InfeasiblePause time.Duration
}

// Controller is the resize controller. A process creates one and runs it once.
type Controller struct {
	env     *cluster.Env
	options Options
	queue   *work.Queue
	// modifying is for attributes, where they do not wait for sizes; nil otherwise.
	modifying *work.Queue

	claims      *cluster.Store[*corev1.PersistentVolumeClaim]
	volumes     *cluster.Store[*corev1.PersistentVolume]
	classes     *cluster.Store[*storagev1.VolumeAttributesClass] // nil with Options.NoModify
	attachments *cluster.Store[*storagev1.VolumeAttachment]      // nil without Options.Attachments

	memories memories
	running  atomic.Bool
	// blindToPods: the right to list pods is not given.
	blindToPods atomic.Bool
}

// New returns the controller. It registers its caches with the Set and makes no call.
func New(env *cluster.Env, o Options) *Controller {
	if o.InfeasiblePause <= 0 {
		o.InfeasiblePause = lifecycle.InfeasiblePause
	}
	if o.ModifyTimeout <= 0 {
		o.ModifyTimeout = env.CallTimeout()
	}
	c := &Controller{
		env: env, options: o, claims: env.Set.Claims(), volumes: env.Set.Volumes(),
	}
	c.queue = env.Queue(env.Driver+"-pvc", cluster.FlowOf(c.claims, c.flow))
	if o.Together && !o.NoModify {
		c.modifying = env.Queue(env.Driver+"-modify-pvc", cluster.FlowOf(c.claims, c.flow))
	}
	c.showOperations()
	c.claims.Use(cluster.ClaimByAttributesClass(), cluster.ClaimByVolumeName())
	c.claims.OnChange(c.claimChanged)
	c.volumes.OnChange(c.volumeChanged)
	if !o.NoModify {
		c.classes = env.Set.AttributesClasses()
		c.classes.OnChange(c.classChanged)
	}
	if o.Attachments {
		c.attachments = env.Set.Attachments()
		c.attachments.Use(cluster.AttachmentByVolume())
		c.attachments.OnChange(c.attachmentChanged)
	}
	return c
}

// Run works until ctx ends, and then waits for the operations in progress.
func (c *Controller) Run(ctx context.Context) error {
	c.running.Store(true)
	defer c.running.Store(false)
	for _, pvc := range c.claims.List() {
		c.enqueue(pvc)
	}
	if c.modifying == nil {
		return c.queue.Run(ctx, c.sync)
	}
	var queues errgroup.Group
	queues.Go(func() error { return c.queue.Run(ctx, c.sync) })
	queues.Go(func() error { return c.modifying.Run(ctx, c.syncModify) })
	return queues.Wait()
}

// subject is a claim with its volume, both as last known. They are shared:
// never changed.
type subject struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

func (s subject) key() string { return cluster.KeyOf(s.claim) }

// subject finds a claim that is bound to a volume of this driver and process.
func (c *Controller) subject(key string) (subject, bool) {
	pvc, found := c.claims.Get(key)
	if !found || pvc.Spec.VolumeName == "" || pvc.Status.Phase != corev1.ClaimBound {
		return subject{}, false
	}
	volume, found := c.volumes.Get(pvc.Spec.VolumeName)
	if !found || !c.owns(volume) || !reserved(volume, pvc) {
		return subject{}, false
	}
	return subject{pvc, volume}, true
}

// owns reports whether a volume may be this process's: of one without an affinity
// the driver has the last word (mine).
func (c *Controller) owns(volume *corev1.PersistentVolume) bool {
	return volume.Spec.CSI != nil && volume.Spec.CSI.Driver == c.env.Driver &&
		(c.env.Scope.OwnsVolume(volume) || c.env.Scope.Unplaced(volume))
}

// mine is the subject if its volume is this process's.
func (c *Controller) mine(ctx context.Context, key string) (s subject, found bool, err error) {
	if s, found = c.subject(key); found {
		found, err = c.env.OwnsVolume(ctx, s.volume)
	}
	return s, found, err
}

// reserved reports whether a volume is bound to this claim by UID, not to an
// earlier claim of the same name.
func reserved(volume *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) bool {
	ref := volume.Spec.ClaimRef
	return ref != nil && ref.Namespace == pvc.Namespace && ref.Name == pvc.Name && ref.UID == pvc.UID
}

// sync resizes a claim's volume and modifies its attributes. An error of one does
// not delay the other.
func (c *Controller) sync(ctx context.Context, key string) (time.Duration, error) {
	s, found, err := c.mine(ctx, key)
	if err != nil || !found {
		return 0, err // its claim or volume comes, if ever, with a change
	}
	defer c.forgetGone(key, s.claim.UID)
	errClean := c.clean(ctx, s)
	grown, errGrow := c.again(ctx, key, c.resize)
	if c.modifying != nil {
		return grown, errors.Join(errClean, errGrow)
	}
	changed, errChange := c.again(ctx, key, c.modify)
	return soonest(grown, changed), errors.Join(errClean, errGrow, errChange)
}

// syncModify modifies a claim's attributes, concurrently with sync. Each writes its
// own part of the status, guarded by the version that it has read: the later one
// gets a conflict and decides again.
func (c *Controller) syncModify(ctx context.Context, key string) (time.Duration, error) {
	s, found, err := c.mine(ctx, key)
	if err != nil || !found {
		return 0, err
	}
	defer c.forgetGone(key, s.claim.UID)
	return c.again(ctx, key, c.modify)
}

// again repeats a step with the live claim if another client wrote it before the driver
// was called.
func (c *Controller) again(
	ctx context.Context, key string, step func(context.Context, subject) (time.Duration, error),
) (time.Duration, error) {
	for attempt := 0; ; attempt++ {
		s, found := c.subject(key)
		if !found {
			return 0, nil
		}
		after, err := step(ctx, s)
		switch {
		case errors.Is(err, cluster.ErrGone):
			return 0, nil
		case !errors.Is(err, cluster.ErrChanged) || attempt == conflictRetries:
			return after, err
		}
		if _, err := c.refresh(ctx, s.claim); err != nil {
			return 0, unless(cluster.ErrGone, err)
		}
	}
}

// clean removes the annotation of the old size from a volume when the claim has the
// new one.
func (c *Controller) clean(ctx context.Context, s subject) error {
	if _, marked := s.volume.Annotations[claim.PreResizeAnnotation]; !marked {
		return nil
	}
	if view := claim.ResizeOf(s.claim, s.volume); view.Granted.Cmp(view.Volume) < 0 {
		return nil
	}
	return c.patchVolume(ctx, s.volume, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{claim.PreResizeAnnotation: nil}},
	})
}

// soonest is the shorter of two pauses; zero is none.
func soonest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}
