package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/coordinate"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/kube/provision"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// CoordinatorOptions are those of a Coordinator.
type CoordinatorOptions struct {
	Clients cluster.Clients
	Driver  string // name of the CSI plugin
	// Namespace is that of the lease and of the CSIStorageCapacity objects, and Intents that
	// of the nodes' intents; "" means Namespace.
	Namespace, Intents string
	// Immediate and CrossNamespace are those of coordinate.Options.
	Immediate, CrossNamespace bool
	Lease                     lease.Options

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Failpoints *failpoint.Set
}

// Coordinator coordinates the processes of a driver's nodes (package coordinate) in a
// process without a driver, while that holds the lease. The nodes' processes are not
// elected then, so that their account needs no right to objects of other nodes.
type Coordinator struct {
	options CoordinatorOptions
	elected atomic.Pointer[cluster.Env]
}

// NewCoordinator prepares a coordinator. It makes no request before Run.
func NewCoordinator(o CoordinatorOptions) *Coordinator {
	o.Intents = cmp.Or(o.Intents, o.Namespace)
	o.Logger = o.Logger.With("component", "kubernetes")
	// The nodes that contend before they are upgraded read their number in the Lease.
	o.Lease.Eager = true
	if o.Lease.State == nil {
		o.Lease.State = &lease.State{}
	}
	return &Coordinator{options: o}
}

// Run contends for the lease, and coordinates while it holds it, until ctx ends.
func (c *Coordinator) Run(ctx context.Context) error {
	o := c.options
	recorder, stop, err := newRecorder(o.Clients, o.Driver)
	if err != nil {
		return err
	}
	defer stop()
	needed := []rights.Role{rights.Coordinate, rights.UnservedIntents, rights.Lease, rights.Events}
	if o.CrossNamespace {
		needed = append(needed, rights.CrossNamespace)
	}
	checker := rights.Checker{
		Client: o.Clients.Core.AuthorizationV1(), Mode: rights.Central, Namespace: o.Namespace, Intents: o.Intents,
	}
	checker.Report(ctx, o.Logger, needed...)
	o.Clients.Core = migration.For(o.Driver).Clients(o.Clients.Core)
	return electable{
		env: &cluster.Env{
			Driver: o.Driver, Clients: o.Clients, Recorder: recorder,
			Namespace: o.Namespace, Intents: o.Intents, Logger: o.Logger, Registerer: o.Registerer, Failpoints: o.Failpoints,
		},
		lease: o.Lease, elected: &c.elected, provisions: true,
		options: coordinate.Options{Immediate: o.Immediate, CrossNamespace: o.CrossNamespace},
	}.run(ctx)
}

// Describe describes the state of the coordinator. It returns an error while it holds the
// lease and fills its caches. A standby, which has none, is ready.
func (c *Coordinator) Describe() (words string, err error) {
	switch {
	case c.elected.Load() != nil:
		return "coordinating the nodes of " + c.options.Driver, nil
	case c.options.Lease.State.Leading():
		return "", errors.New("filling the caches")
	}
	return "standby", nil
}

// Stuck is that of Controllers.
func (c *Coordinator) Stuck() (queue string, since time.Duration) {
	if env := c.elected.Load(); env != nil {
		return env.Stuck()
	}
	return "", 0
}

// coordinate coordinates the nodes while this node's process holds the lease.
func (c *Controllers) coordinate(ctx context.Context, env *cluster.Env) error {
	e := electable{
		env: env, lease: c.options.Lease, elected: &c.elected,
		provisions: slices.Contains(c.options.Wanted, rights.Provision),
		options: coordinate.Options{
			Immediate: c.options.Tuning.ImmediateOnNodes, CrossNamespace: c.options.Tuning.CrossNamespace, Refusals: c.refusals,
		},
	}
	e.lease.HoldUpstream, e.lease.State = false, nil
	return e.run(ctx)
}

// electable is a process that coordinates the nodes if it is elected.
type electable struct {
	env     *cluster.Env
	lease   lease.Options
	options coordinate.Options
	// provisions reports whether the nodes' processes make volumes, and so have intents.
	provisions bool
	elected    *atomic.Pointer[cluster.Env] // the environment of the coordination, set while it works
}

// run contends for the lease until ctx ends. The lease is not that of a central process, which
// may attach the volumes of the same driver. The loss of the lease ends the coordination
// only: the process may also have a node's driver.
func (e electable) run(ctx context.Context) error {
	e.lease.Name, e.lease.Again = cmp.Or(e.lease.Name, lease.NodesName(e.env.Driver)), true
	var kept caches
	defer kept.leave(0)
	for {
		err := e.term(ctx, &kept)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, lease.ErrLost) {
			return err
		}
		e.env.Logger.WarnContext(ctx, "this process does not coordinate the nodes any more, and contends again", "error", err)
		kept.leave(keepCaches)
		if !work.Sleep(ctx, lease.DefaultRetryPeriod) {
			return nil
		}
	}
}

// keepCaches is how long a process keeps the caches of the objects of all nodes after it has
// lost the lease. To fill them, the API server sends every object.
const keepCaches = time.Minute

// caches are those of the objects of all nodes, which a standby lacks. After the loss of the
// lease they are kept for a while, and used again if no other process held the lease
// meanwhile: they are then as valid as without the loss.
type caches struct {
	mu     sync.Mutex
	set    *cluster.Set // nil for none
	tenure lease.Tenure
	stop   context.CancelFunc
	used   bool
	leaves int // counts the calls of leave: only the last one may end the caches
}

// take returns the caches of a tenure, which fresh makes unless they are kept. start is to be
// called once their readers have registered; they follow the cluster until ctx ends.
func (c *caches) take(ctx context.Context, tenure lease.Tenure, fresh func() *cluster.Set) (set *cluster.Set, start func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
	if c.set != nil && c.tenure == tenure {
		return c.set, func() {}
	}
	c.end()
	following, stop := context.WithCancel(ctx)
	c.set, c.tenure, c.stop = fresh(), tenure, stop
	set = c.set
	return set, func() { set.Start(following) }
}

// leave ends the caches after a while, unless they are taken again.
func (c *caches) leave(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = false
	c.leaves++
	last := c.leaves
	time.AfterFunc(after, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.used && c.leaves == last {
			c.end()
		}
	})
}

// end stops the caches. The caller holds the lock.
func (c *caches) end() {
	if c.stop != nil {
		c.stop()
	}
	c.set, c.stop = nil, nil
}

// term waits for the lease and coordinates until it is lost.
func (e electable) term(ctx context.Context, kept *caches) error {
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
	var tenure lease.Tenure
	e.lease.Acquired = func(acquired lease.Tenure) { tenure = acquired }
	process := ctx
	return lease.Run(ctx, own, e.lease, func(ctx context.Context) error {
		set, start := kept.take(process, tenure, func() *cluster.Set {
			return cluster.NewSet(env.Clients, env.Driver, env.Namespace, env.Logger)
		})
		own.Set = set
		defer set.Forget()
		defer own.EndQueues()
		coordinator := coordinate.New(own, e.options)
		running.Store(coordinator)
		start()
		if err := set.Notify(ctx); err != nil {
			return unless(ctx, err)
		}
		e.elected.Store(own)
		defer e.elected.Store(nil)
		group, working := errgroup.WithContext(ctx)
		group.Go(func() error { return freeAfterFill(working, own.Set, debug.FreeOSMemory) })
		group.Go(func() error { return coordinator.Run(working) })
		if e.provisions {
			unserved := provision.NewUnserved(own, coordinator.Registered)
			group.Go(func() error { unserved.Run(working); return nil })
		}
		return group.Wait()
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
