// Package health shows in pvc.status.healthStatus what the driver's controller
// reports of volumes: the model of CSI 1.13 and KEP-1432 as of Kubernetes 1.37
// (alpha, feature gate CSIVolumeHealth). It takes the place of
// external-health-monitor. What nodes see of volumes and storage the kubelet
// asks and shows itself.
//
// The driver's report is authoritative, and a failed call says nothing: the
// last known state stays. A claim is written only when the report differs from
// what it shows; healthy volumes cost no write ever.
package health

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

const (
	// DefaultInterval is the time between two looks; that of
	// external-health-monitor's listing.
	DefaultInterval = 5 * time.Minute
	// gateInterval is the time between two looks while the API server drops the
	// field, because its feature gate is off or it is older than 1.37.
	gateInterval = time.Hour
	// defaultParallel bounds the calls for single volumes in flight.
	defaultParallel = 10
	// cyclesToRecover is how many complete lists in a row must lack a volume
	// before it is well, where the driver cannot be asked for it alone (KEP-1432:
	// pages may shift, so one absence proves nothing).
	cyclesToRecover = 2
)

// Options of the controller.
type Options struct {
	Interval time.Duration // 0 means DefaultInterval
	Parallel int           // calls for single volumes in flight; 0 means 10
}

// Controller keeps the claims' health status.
type Controller struct {
	env     *cluster.Env
	options Options
	volumes *cluster.Store[*corev1.PersistentVolume]
	claims  *cluster.Store[*corev1.PersistentVolumeClaim]
	metrics *metrics
	log     *slog.Logger

	// absent counts the complete lists in a row that lacked a volume which its
	// claim shows as unwell, by handle. Only Run's goroutine uses it.
	absent map[string]int
	said   string // what was logged of the driver's abilities

	writing sync.Mutex // one patch at a time: the first tells whether the field is kept
	dropped bool       // guarded by writing: the API server drops the field
}

// New makes the controller; nothing is called before Run.
func New(env *cluster.Env, o Options) *Controller {
	if o.Interval <= 0 {
		o.Interval = DefaultInterval
	}
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	return &Controller{
		env: env, options: o, volumes: env.Set.Volumes(), claims: env.Set.Claims(),
		metrics: newMetrics(env.Registerer, env.Driver), log: env.Logger.With("controller", "health"),
		absent: map[string]int{},
	}
}

// Run looks, at once and then at intervals, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for {
		if !work.Sleep(ctx, c.look(ctx)) {
			return nil
		}
	}
}

// look goes once through all volumes and returns the pause until the next time.
func (c *Controller) look(ctx context.Context) (pause time.Duration) {
	can, err := c.env.CSI.ControllerCapabilities(ctx)
	switch {
	case err != nil:
		if !ended(ctx, err) {
			c.log.WarnContext(ctx, "the driver does not tell what it can do; volume health stays as it was", "error", err)
		}
		return c.jitter(c.options.Interval)
	case can.ListVolumeHealth:
		c.say("volume health is listed")
		c.lookAtList(ctx, can.GetVolumeHealth)
	case can.GetVolumeHealth:
		c.say("volume health is asked for volume by volume")
		c.lookAtEach(ctx)
	default:
		c.say("the driver reports no volume health")
	}
	if c.isDropped() {
		return c.jitter(max(gateInterval, c.options.Interval))
	}
	return c.jitter(c.options.Interval)
}

// jitter keeps the nodes of a cluster from looking all at once.
func (c *Controller) jitter(d time.Duration) time.Duration {
	return d - d/20 + rand.N(d/10+1) //nolint:gosec // it spreads load, nothing depends on it
}

// say logs what the driver can do, once per change.
func (c *Controller) say(what string) {
	if c.said != what {
		c.said = what
		c.log.Info(what)
	}
}

// bound is a volume of ours and the claim that has it.
type bound struct {
	handle string
	claim  *corev1.PersistentVolumeClaim
}

// bound lists the driver's volumes in this process's scope that a claim is bound to.
func (c *Controller) bound() []bound {
	var found []bound
	for _, volume := range c.volumes.List() {
		source, reference := volume.Spec.CSI, volume.Spec.ClaimRef
		if source == nil || source.Driver != c.env.Driver || reference == nil || !c.env.Scope.OwnsVolume(volume) {
			continue
		}
		claim, exists := c.claims.Get(reference.Namespace + "/" + reference.Name)
		if exists && claim.UID == reference.UID && claim.Spec.VolumeName == volume.Name {
			found = append(found, bound{handle: source.VolumeHandle, claim: claim})
		}
	}
	return found
}
