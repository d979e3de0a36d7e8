// Package lease elects the leader among several processes: the controllers of one
// driver run in the process that holds a Lease (coordination.k8s.io/v1). One Lease
// covers all controllers. The leader renews it over its own connection and
// releases it when the work has ended, so that the next leader does not wait until
// it expires.
//
// During a migration from the upstream sidecars the process can hold their Leases
// as well: a sidecar with leader election then stays passive.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Defaults of Kubernetes' own components. The sidecars retry every 5 s: with their
// jitter a released lease waits up to 11 s for the next holder.
const (
	DefaultDuration      = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// JitterFactor limits the jitter that is added to the pause between two attempts to
// acquire a lease, as a multiple of RetryPeriod. It is client-go's. RenewDeadline
// must exceed it.
const JitterFactor = 1.2

// ErrLost reports that the lease was not renewed in time, or that another process
// holds it. The work has ended when Run returns it; the process should end, too.
var ErrLost = errors.New("the lease was lost")

// Options of Run.
type Options struct {
	// Identity is this process's holderIdentity in the Lease. It must be unique among
	// running processes: a pod's UID is, the name of a pod or a node is not.
	Identity string
	// Name of the Lease; "" means Name(driver).
	Name string
	// Namespace of the Lease; "" means that of the environment.
	Namespace string
	// HoldUpstream holds the Leases of the upstream sidecars as well.
	HoldUpstream bool
	// Duration is how long others wait after the last renewal, in whole seconds.
	// RenewDeadline is how long the process retries a renewal, RetryPeriod the pause
	// between two attempts. 0 means the defaults above.
	Duration, RenewDeadline, RetryPeriod time.Duration
	Labels                               map[string]string
	// Contenders returns how many processes contend for the lease, as far as its holder
	// knows; it may be nil. Many contenders poll less often: together about ten times a
	// second.
	Contenders func() int
	// Again is for a process that contends again after a loss: it does not release the lost
	// lease, so that it continues the tenure unless another process acquires the lease.
	Again bool
	// Acquired is called before the work begins; it may be nil.
	Acquired func(Tenure)
	// Eager polls as one of few contenders, whatever number the holder has written.
	Eager bool
	// State receives the state of the election; it may be nil.
	State *State
	// clock is the process's clock; nil means the system's.
	clock clock
}

// Tenure identifies the time for which a process holds a Lease. Between two acquisitions of the
// same Tenure, no other process held it.
type Tenure struct {
	UID         types.UID
	Transitions int32 // counts the holders, as every one of them does
}

// Identity returns the identity of a process in a pod; without a UID it is random.
// The name of the pod is not enough: a pod of a StatefulSet that was deleted by force
// may still run while its successor has the same name. Of a pod with one UID the
// kubelet runs one container after the other.
func Identity(pod, uid string) string { return pod + "_" + cmp.Or(uid, string(uuid.NewUUID())) }

// Name returns the name of the Lease of all controllers of a driver.
func Name(driver string) string { return strings.ToLower("holdfast-" + claim.Sanitise(driver)) }

// NodesName returns the name of the Lease of the process that coordinates the processes of a
// driver's nodes.
func NodesName(driver string) string { return Name(driver) + "-nodes" }

// UpstreamNames returns the Leases of the sidecars that Holdfast replaces, in the
// order in which Run acquires them.
func UpstreamNames(driver string) []string {
	var names []string
	for _, prefix := range []string{
		"", "external-attacher-leader-", "external-resizer-", "external-snapshotter-leader-", "external-health-monitor-leader-",
	} {
		names = append(names, claim.Sanitise(prefix+driver))
	}
	return names
}

// Run acquires the lease, runs work while it holds it, and releases it after work
// has returned. It returns work's error. If the lease is lost, Run cancels work's
// context, waits for work and returns an error that is ErrLost. If ctx ends, Run
// keeps renewing the lease until work has returned.
func Run(ctx context.Context, env *cluster.Env, o Options, work func(context.Context) error) error {
	o = o.withDefaults(env)
	if err := o.validate(); err != nil {
		return err
	}
	measured, err := newMetrics(env.Registerer, o.clock)
	if err != nil {
		return fmt.Errorf("lease: metrics: %w", err)
	}
	h := &holder{
		options: o, client: env.Leases.CoordinationV1(), log: env.Logger.With("component", "lease"), metrics: measured,
	}
	defer o.State.end()
	// Holdfast's lease is first: only its holder tries to acquire the others, so that
	// two processes cannot deadlock with some leases each.
	names := []string{o.Name}
	if o.HoldUpstream {
		names = append(names, UpstreamNames(env.Driver)...)
	}
	return h.holdAll(ctx, names, work)
}

func (o Options) withDefaults(env *cluster.Env) Options {
	if o.Name == "" {
		o.Name = Name(env.Driver)
	}
	if o.Namespace == "" {
		o.Namespace = env.Namespace
	}
	if o.Duration <= 0 {
		o.Duration = DefaultDuration
	}
	if o.RenewDeadline <= 0 {
		o.RenewDeadline = DefaultRenewDeadline
	}
	if o.RetryPeriod <= 0 {
		o.RetryPeriod = DefaultRetryPeriod
	}
	if o.State == nil {
		o.State = &State{}
	}
	if o.clock == nil {
		o.clock = systemClock{}
	}
	return o
}

// validate applies the conditions of client-go's election to the duration in whole
// seconds, as it is written.
func (o Options) validate() error {
	switch {
	case o.Identity == "":
		return errors.New("lease: the identity is empty")
	case o.seconds() <= o.RenewDeadline:
		return fmt.Errorf("lease: a duration of %v is not above the renew deadline, %v", o.seconds(), o.RenewDeadline)
	case float64(o.RenewDeadline) <= JitterFactor*float64(o.RetryPeriod):
		return fmt.Errorf("lease: a renew deadline of %v is not above %v times the retry period, %v",
			o.RenewDeadline, JitterFactor, o.RetryPeriod)
	}
	return nil
}

// seconds returns the duration as the Lease has it, in whole seconds.
func (o Options) seconds() time.Duration { return o.Duration.Truncate(time.Second) }

// holder acquires leases and runs the work.
type holder struct {
	options Options
	client  api.CoordinationV1
	log     *slog.Logger
	metrics *metrics
}

// holdAll acquires the leases in order and runs work while it holds all of them.
func (h *holder) holdAll(ctx context.Context, names []string, work func(context.Context) error) error {
	if len(names) == 0 {
		h.options.State.lead()
		return work(ctx)
	}
	return h.hold(ctx, names[0], func(ctx context.Context) error { return h.holdAll(ctx, names[1:], work) })
}

// hold acquires one lease and runs work while it holds it.
func (h *holder) hold(ctx context.Context, name string, work func(context.Context) error) error {
	// Not ctx: the lease is renewed until work has returned, also after ctx ended.
	contending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	t := newTerm(h.options, func(why string) {
		h.options.State.lose(name, h.options.Duration)
		lose(fmt.Errorf("lease %s/%s: %s: %w", h.options.Namespace, name, why, ErrLost))
		stop()
	})
	c := h.contender(name)
	h.options.State.wait(name)
	acquired, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if h.acquire(contending, c, t) {
			if h.options.Acquired != nil {
				h.options.Acquired(c.tenure())
			}
			close(acquired)
			c.renew(contending, t)
		}
	}()
	var err error
	select {
	case <-acquired:
		h.metrics.leading.WithLabelValues(name).Set(1)
		err = work(working)
	case <-ctx.Done():
	}
	t.end()
	stop()
	<-ended
	h.metrics.leading.WithLabelValues(name).Set(0)
	lost := context.Cause(working)
	again := h.options.Again && ctx.Err() == nil && errors.Is(lost, ErrLost)
	if !again {
		h.release(ctx, c)
	}
	if ctx.Err() == nil && errors.Is(lost, ErrLost) {
		if errors.Is(err, context.Canceled) {
			err = nil // a consequence of the lost lease
		}
		err = errors.Join(lost, err)
	}
	return err
}

func (h *holder) release(ctx context.Context, c *contender) {
	if err := c.release(context.WithoutCancel(ctx)); err != nil {
		c.log.WarnContext(ctx, "cannot release the lease; other processes wait until it expires", "error", err)
	}
}

// acquire retries until this process holds the lease and its term has begun. It
// returns false if ctx ends first.
func (h *holder) acquire(ctx context.Context, c *contender, t *term) bool {
	c.log.InfoContext(ctx, "Attempting to acquire leader lease...")
	for {
		sent, held := c.acquire(ctx)
		if !held {
			return false
		}
		if t.renewed(sent) {
			c.log.InfoContext(ctx, "Successfully acquired lease")
			return true
		}
	}
}

func (h *holder) contender(name string) *contender {
	return &contender{
		options: h.options, name: name, metrics: h.metrics, leases: h.client.Leases(h.options.Namespace),
		log: h.log.With("lock", h.options.Namespace+"/"+name),
	}
}
