package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/coordinate"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// CoordinatorOptions are those of Coordinate.
type CoordinatorOptions struct {
	Clients cluster.Clients
	Driver  string // name of the CSI plugin
	// Namespace is that of the lease and of the CSIStorageCapacity objects.
	Namespace string
	// Immediate selects nodes for claims with immediate binding.
	Immediate bool
	Lease     lease.Options
	Limits    cluster.Limits

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Failpoints *failpoint.Set
}

// Coordinate coordinates the processes of a driver's nodes (package coordinate) until ctx
// ends, as long as this process holds the lease. It calls no driver.
func Coordinate(ctx context.Context, o CoordinatorOptions) error {
	recorder, stop, err := newRecorder(o.Clients, o.Driver)
	if err != nil {
		return err
	}
	defer stop()
	e := electable{
		env: &cluster.Env{
			Driver: o.Driver, Clients: o.Clients, Recorder: recorder, Namespace: o.Namespace, Limits: o.Limits,
			Logger: o.Logger.With("component", "kubernetes"), Registerer: o.Registerer, Failpoints: o.Failpoints,
		},
		lease: o.Lease, options: coordinate.Options{Immediate: o.Immediate}, elected: &atomic.Bool{},
	}
	return e.run(ctx)
}

// coordinate coordinates the nodes while this node's process holds the lease.
func (c *Controllers) coordinate(ctx context.Context, env *cluster.Env) error {
	e := electable{
		env: env, lease: c.options.Lease, elected: &c.elected,
		options: coordinate.Options{Immediate: c.options.Tuning.ImmediateOnNodes, Refused: c.refused},
	}
	e.lease.HoldUpstream, e.lease.State = false, nil
	return e.run(ctx)
}

// electable is a process that coordinates the nodes if it is elected.
type electable struct {
	env     *cluster.Env
	lease   lease.Options
	options coordinate.Options
	elected *atomic.Bool // set while it coordinates
}

// run contends for the lease until ctx ends. The lease is not that of a central process, which
// may attach the volumes of the same driver. The loss of the lease ends the coordination
// only: the process may also have a node's driver.
func (e electable) run(ctx context.Context) error {
	e.lease.Name = cmp.Or(e.lease.Name, lease.NodesName(e.env.Driver))
	for {
		err := e.term(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the error is a consequence
		}
		if !errors.Is(err, lease.ErrLost) {
			return err
		}
		e.env.Logger.WarnContext(ctx, "another process coordinates the nodes from now on", "error", err)
		if !work.Sleep(ctx, lease.DefaultRetryPeriod) {
			return nil
		}
	}
}

// term waits for the lease and coordinates until it is lost. The caches of the objects of
// all nodes exist only meanwhile: a standby has none.
func (e electable) term(ctx context.Context) error {
	env := e.env
	registered := &registrations{Registerer: env.Registerer}
	defer registered.end()
	own := &cluster.Env{
		Driver: env.Driver, Clients: env.Clients, CSI: env.CSI, Recorder: env.Recorder,
		Namespace: env.Namespace, Intents: env.Intents, Limits: env.Limits,
		Logger: env.Logger, Registerer: registered, Failpoints: env.Failpoints,
	}
	var running atomic.Pointer[coordinate.Controller]
	e.lease.Contenders = func() int {
		if coordinator := running.Load(); coordinator != nil {
			return coordinator.Nodes()
		}
		return 0
	}
	return lease.Run(ctx, own, e.lease, func(ctx context.Context) error {
		own.Set = cluster.NewSet(env.Clients, env.Driver, env.Namespace, env.Logger)
		coordinator := coordinate.New(own, e.options)
		running.Store(coordinator)
		own.Set.Start(ctx)
		if err := own.Set.Wait(ctx); err != nil {
			return unless(ctx, err)
		}
		e.elected.Store(true)
		defer e.elected.Store(false)
		return coordinator.Run(ctx)
	})
}

// registrations are the metrics that exist only while the process is elected.
type registrations struct {
	prometheus.Registerer
	made []prometheus.Collector
}

func (r *registrations) Register(collector prometheus.Collector) error {
	err := r.Registerer.Register(collector)
	if err == nil {
		r.made = append(r.made, collector)
	}
	return err
}

func (r *registrations) MustRegister(collectors ...prometheus.Collector) {
	r.Registerer.MustRegister(collectors...)
	r.made = append(r.made, collectors...)
}

func (r *registrations) end() {
	for _, collector := range r.made {
		r.Unregister(collector)
	}
}
