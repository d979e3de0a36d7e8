// Package lease lets one of several processes work at a time: the controllers
// of one driver run in the process that holds a Lease (coordination.k8s.io/v1).
// There is one Lease for all of them, renewed over a connection of its own, and
// given back when the work has ended, so that the next process need not wait
// until it expires.
//
// While a cluster moves from the upstream sidecars, the Leases of these can be
// held as well: a sidecar that elects then stays passive.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Times of Kubernetes' own components. The sidecars try every 5 s: with their
// jitter a lease that was given back waits up to 11 s for the next holder.
const (
	DefaultDuration      = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// JitterFactor is how many times the RetryPeriod the pause between two tries to
// take a lease is longer, at most; client-go's. A renewal must fit into the rest.
const JitterFactor = 1.2

// ErrLost says that the lease could not be renewed in time, or that another
// process has it. The work has ended by then; the process should end, too.
var ErrLost = errors.New("the lease was lost")

// Options of Run.
type Options struct {
	// Identity is this process's name in the Lease. No two living processes may
	// have the same; a pod's UID is right, the name of a pod or a node is not.
	Identity string
	// Name of the Lease; "" means Name(driver).
	Name string
	// Namespace of the Lease; "" means that of the environment.
	Namespace string
	// HoldUpstream holds the Leases of the upstream sidecars as well.
	HoldUpstream bool
	// Duration is how long others wait for a process that renews no more, in
	// whole seconds. RenewDeadline is how long one renewal is tried, RetryPeriod
	// the pause between two tries. 0 means the defaults above.
	Duration, RenewDeadline, RetryPeriod time.Duration
	Labels                               map[string]string
	// State is told what happens; it may be nil.
	State *State
	// clock is the process's; nil means that of the system.
	clock clock
}

// Identity names a process by its pod; without a UID it is another one for each
// process. The name of a pod alone is not enough: a pod of a StatefulSet that is
// deleted by force may continue while its successor has its name. Of one pod, UID
// and all, the kubelet runs one container after the other.
func Identity(pod, uid string) string { return pod + "_" + cmp.Or(uid, string(uuid.NewUUID())) }

// Name is the Lease of all controllers of a driver.
func Name(driver string) string { return strings.ToLower("holdfast-" + claim.Sanitise(driver)) }

// UpstreamNames are the Leases of the sidecars that Holdfast takes the place
// of, in the order in which they are taken.
func UpstreamNames(driver string) []string {
	var names []string
	for _, prefix := range []string{
		"", "external-attacher-leader-", "external-resizer-", "external-snapshotter-leader-", "external-health-monitor-leader-",
	} {
		names = append(names, claim.Sanitise(prefix+driver))
	}
	return names
}

// Run waits for the lease, runs work while it is held, and gives it back after
// work has returned. It returns work's error. When the lease is lost, work's
// context ends; Run waits for work and returns an error that is ErrLost. When
// ctx ends, work is waited for with the lease still held.
func Run(ctx context.Context, env *cluster.Env, o Options, work func(context.Context) error) error {
	o = o.withDefaults(env)
	if err := o.validate(); err != nil {
		return err
	}
	h := &holder{
		options: o, client: env.Leases.CoordinationV1(), log: env.Logger.With("component", "lease"),
		leading: promauto.With(env.Registerer).NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 while this process holds the lease.",
		}, []string{"name"}),
	}
	defer o.State.end()
	// The own lease is first: whoever has it alone goes on to the others, so two
	// processes never hold some each and wait for one another.
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

// validate has the conditions of client-go's election, of the duration as it is
// written.
func (o Options) validate() error {
	switch {
	case o.Identity == "":
		return errors.New("lease: no identity was given")
	case o.seconds() <= o.RenewDeadline:
		return fmt.Errorf("lease: a duration of %v is not above the renew deadline, %v", o.seconds(), o.RenewDeadline)
	case float64(o.RenewDeadline) <= JitterFactor*float64(o.RetryPeriod):
		return fmt.Errorf("lease: a renew deadline of %v is not above %v times the retry period, %v", o.RenewDeadline, JitterFactor, o.RetryPeriod)
	}
	return nil
}

// seconds is the duration as others read it in the Lease, which has whole seconds.
func (o Options) seconds() time.Duration { return o.Duration.Truncate(time.Second) }

// holder takes leases.
type holder struct {
	options Options
	client  api.CoordinationV1
	log     *slog.Logger
	leading *prometheus.GaugeVec
}

// holdAll holds one lease within the other.
func (h *holder) holdAll(ctx context.Context, names []string, work func(context.Context) error) error {
	if len(names) == 0 {
		h.options.State.lead()
		return work(ctx)
	}
	return h.hold(ctx, names[0], func(ctx context.Context) error { return h.holdAll(ctx, names[1:], work) })
}

// hold runs work while one lease is held.
func (h *holder) hold(ctx context.Context, name string, work func(context.Context) error) error {
	// Not ctx: the lease is renewed until work has ended, also after ctx has.
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
			close(acquired)
			c.keep(contending, t)
		}
	}()
	var err error
	select {
	case <-acquired:
		h.leading.WithLabelValues(name).Set(1)
		err = work(working)
	case <-ctx.Done():
	}
	t.end()
	stop()
	<-ended
	h.leading.WithLabelValues(name).Set(0)
	if failed := c.release(context.WithoutCancel(ctx)); failed != nil {
		c.log.WarnContext(ctx, "cannot give the lease back; others wait until it has run out", "error", failed)
	}
	if lost := context.Cause(working); ctx.Err() == nil && errors.Is(lost, ErrLost) {
		if errors.Is(err, context.Canceled) {
			err = nil // that is what lost says
		}
		err = errors.Join(lost, err)
	}
	return err
}

// acquire waits until the lease is held and its term has begun; it is false when
// ctx ends first.
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
		options: h.options, name: name, leases: h.client.Leases(h.options.Namespace),
		log: h.log.With("lock", h.options.Namespace+"/"+name),
	}
}
