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
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Times of Kubernetes' own components. The sidecars try every 5 s: with their
// jitter a lease that was given back waits up to 11 s for the next holder.
const (
	DefaultDuration      = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// ErrLost says that the lease could not be renewed in time, or that another
// process has it. The work has ended by then; the process should end, too.
var ErrLost = errors.New("the lease was lost")

// Options of Run.
type Options struct {
	// Identity is this process's name in the Lease. No two living processes may
	// have the same; a pod's name is right, a node's is not.
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
}

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
	if o.Identity == "" {
		return errors.New("lease: no identity was given")
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
	return o
}

// holder takes leases.
type holder struct {
	options Options
	client  coordination.LeasesGetter
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
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	working, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	lock := h.newLock(name, func(why string) {
		h.options.State.lose(name, h.options.Duration)
		lose(fmt.Errorf("lease %s/%s: %s: %w", h.options.Namespace, name, why, ErrLost))
	})
	acquired := make(chan struct{})
	elector, err := h.newElector(name, lock, acquired)
	if err != nil {
		return fmt.Errorf("lease %s: %w", name, err)
	}
	h.options.State.wait(name)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(klog.NewContext(electing, logr.FromSlogHandler(h.log.Handler())))
		lock.lost("it was not renewed in time")
	}()
	select {
	case <-acquired:
		h.leading.WithLabelValues(name).Set(1)
		err = work(working)
	case <-ctx.Done():
	}
	lock.stop()
	stop()
	<-ended
	h.leading.WithLabelValues(name).Set(0)
	if lost := context.Cause(working); ctx.Err() == nil && errors.Is(lost, ErrLost) {
		if errors.Is(err, context.Canceled) {
			err = nil // that is what lost says
		}
		err = errors.Join(lost, err)
	}
	return err
}

func (h *holder) newElector(name string, lock *lock, acquired chan<- struct{}) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name, Lock: lock, ReleaseOnCancel: true,
		LeaseDuration: h.options.Duration, RenewDeadline: h.options.RenewDeadline, RetryPeriod: h.options.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(acquired) },
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { h.options.State.see(name, identity) },
		},
	})
}

func (h *holder) newLock(name string, lose func(why string)) *lock {
	return &lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: h.options.Namespace, Name: name}, Client: h.client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: h.options.Identity}, Labels: h.options.Labels,
		},
		duration: h.options.Duration, timeout: h.options.RenewDeadline / 2, lose: lose,
	}
}
