// Package health writes the driver's reports on volume health to
// pvc.status.healthStatus, as CSI 1.13 and KEP-1432 define it for Kubernetes 1.37
// (alpha, feature gate CSIVolumeHealth). It replaces external-health-monitor. The
// kubelet itself reads and reports the health that a node's driver reports.
//
// The driver's report is authoritative. A failed call carries no information: the last
// known state stays. The controller writes a claim only if the report differs from
// its status, so that a healthy volume never causes a write.
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
	// DefaultInterval is the time between two polls. It is that of
	// external-health-monitor's listing.
	DefaultInterval = 5 * time.Minute
	// gateInterval is the time between two polls while the API server drops the
	// field, because its feature gate is off or it is older than 1.37.
	gateInterval = time.Hour
	// defaultParallel limits the concurrent calls for single volumes.
	defaultParallel = 10
	// cyclesToRecover is how many consecutive complete lists must lack a volume
	// before it counts as healthy, for a driver without GET_VOLUME_HEALTH (KEP-1432:
	// pages may shift, so that one absence proves nothing).
	cyclesToRecover = 2
)

// Options of the controller.
type Options struct {
	Interval time.Duration // 0 means DefaultInterval
	Parallel int           // concurrent calls for single volumes; 0 means 10
}

// Controller maintains the health status of claims.
type Controller struct {
	env     *cluster.Env
	options Options
	volumes *cluster.Store[*corev1.PersistentVolume]
	claims  *cluster.Store[*corev1.PersistentVolumeClaim]
	metrics *instruments
	log     *slog.Logger

	// absent counts the consecutive complete lists that lacked a volume whose claim
	// has conditions, by handle. Only Run's goroutine uses it.
	absent map[string]int
	logged string // the driver's ability that was logged last

	writing sync.Mutex // one patch at a time: the first reveals whether the API server stores the field
	dropped bool       // guarded by writing: the API server drops the field
}

// New makes the controller. It calls nothing before Run.
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

// Run polls, at once and then at intervals, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	for {
		if !work.Sleep(ctx, c.poll(ctx)) {
			return nil
		}
	}
}

// poll updates the status of all claims once and returns the pause until the next poll.
func (c *Controller) poll(ctx context.Context) (pause time.Duration) {
	can, err := c.env.CSI.ControllerCapabilities(ctx)
	switch {
	case err != nil:
		if !ended(ctx, err) {
			c.log.WarnContext(ctx, "cannot read the driver's capabilities; volume health stays as it was", "error", err)
		}
		return c.jitter(c.options.Interval)
	case can.ListVolumeHealth:
		c.logAbility("volume health is listed")
		c.pollList(ctx, can.GetVolumeHealth)
	case can.GetVolumeHealth:
		c.logAbility("volume health is read volume by volume")
		c.pollEach(ctx)
	default:
		c.logAbility("the driver reports no volume health")
	}
	if c.isDropped() {
		return c.jitter(max(gateInterval, c.options.Interval))
	}
	return c.jitter(c.options.Interval)
}

// jitter spreads the polls of a cluster's nodes.
func (c *Controller) jitter(d time.Duration) time.Duration {
	return d - d/20 + rand.N(d/10+1) //nolint:gosec // it spreads load, nothing depends on it
}

// logAbility logs how the driver reports health, once per change.
func (c *Controller) logAbility(what string) {
	if c.logged != what {
		c.logged = what
		c.log.Info(what)
	}
}

// bound is a volume of the driver and the claim that is bound to it.
type bound struct {
	handle string
	claim  *corev1.PersistentVolumeClaim
}

// bound lists the driver's volumes in this process's scope that are bound to a claim.
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
