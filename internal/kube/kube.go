// Package kube is the Kubernetes door: the controllers that replace the sidecars of
// a CSI driver, in one process, with one set of caches and one lease. It uses the
// driver through package csi/client only: Holdfast's own driver by function calls,
// any other driver over a socket.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/coordinate"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/internal/kube/nodelabel"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// clusterNamespaces is the prefix of the namespaces of Kubernetes itself.
const clusterNamespaces = "kube-"

// Options of the controllers of one driver.
type Options struct {
	Clients cluster.Clients
	// CSI calls the driver. Its Disconnected must call Reconnect.
	CSI *client.Client
	// Node is the name of the node whose objects this process acts on. If it is "",
	// the process acts on all objects and holds the lease meanwhile.
	Node string
	// Namespace and Pod are those of this process.
	Namespace, Pod string
	// Intents is the namespace of its intents; "" means Namespace.
	Intents string
	// MergesChanges reports that the driver merges a volume's expansion and its
	// modification into one change if both calls arrive together. CSI has no
	// capability for that.
	MergesChanges bool
	// NodeLabels returns labels for Nodes, which a central process writes; nil for none.
	NodeLabels nodelabel.Find
	// Wanted are the roles to run, if the driver supports them; nil means all.
	Wanted []Role
	// Lease configures the leader election, which a node's process takes part in with
	// Tuning.NodeObjectsOnly.
	Lease  lease.Options
	Elect  bool
	Tuning Tuning
	Limits Limits

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// MetricsVolumes is the number of volumes whose names are metrics.
	MetricsVolumes int
	Tracer         *tracing.Tracer // nil for no traces
	Failpoints     *failpoint.Set
	// FreeMemory returns freed memory to the system after the caches have filled; nil means
	// debug.FreeOSMemory.
	FreeMemory func()
}

// Controllers are the controllers of one driver.
type Controllers struct {
	options     Options
	reconnected chan struct{}
	phase       atomic.Pointer[string]
	env         atomic.Pointer[cluster.Env]
	driver      atomic.Pointer[string]
	// elected is the environment in which this node's process coordinates all nodes; nil
	// unless it is elected.
	elected atomic.Pointer[cluster.Env]
	// refusals are the classes that the driver rejects; nil without capacity objects.
	refusals coordinate.Refusals
}

// New prepares the controllers. It reads and writes nothing before Run.
func New(o Options) (*Controllers, error) {
	for _, role := range o.Wanted {
		if !slices.Contains(Roles(), role) {
			return nil, fmt.Errorf("unknown controller %q; the controllers are %v", role, Roles())
		}
	}
	if o.Wanted == nil {
		o.Wanted = Roles()
	}
	if o.Namespace == "" {
		return nil, errors.New("the process's namespace is not known; give --namespace or set POD_NAMESPACE")
	}
	o.Intents = cmp.Or(o.Intents, o.Namespace)
	if o.FreeMemory == nil {
		o.FreeMemory = debug.FreeOSMemory
	}
	o.Logger = o.Logger.With("component", "kubernetes")
	c := &Controllers{options: o, reconnected: make(chan struct{}, 1)}
	c.enter("starting")
	return c, c.registerVolumeInfos()
}

// Reconnect reports that the connection to the driver was lost. It does not block.
func (c *Controllers) Reconnect() {
	select {
	case c.reconnected <- struct{}{}:
	default:
	}
}

// Driver returns the driver's name, "" before the handshake.
func (c *Controllers) Driver() string {
	if name := c.driver.Load(); name != nil {
		return *name
	}
	return ""
}

func (c *Controllers) enter(phase string) { c.phase.Store(&phase) }

// Describe describes the state of the controllers. It returns an error while they
// cannot work. A standby with synced caches can.
func (c *Controllers) Describe() (words string, err error) {
	env := c.env.Load()
	if env == nil || !env.Set.Synced() {
		return "", errors.New(*c.phase.Load())
	}
	return "serving " + env.Driver + ", the caches are filled", nil
}

// Stuck returns the queue that has been stuck for the longest time (work.Queue.Stuck), and
// that time; 0 if there is none.
func (c *Controllers) Stuck() (queue string, since time.Duration) {
	if env := c.env.Load(); env != nil {
		queue, since = env.Stuck()
	}
	if env := c.elected.Load(); env != nil {
		if other, longer := env.Stuck(); longer > since {
			return other, longer
		}
	}
	return queue, since
}

// Run waits for the driver, fills the caches and runs the controllers until ctx
// ends, while this process holds the lease if there is one. It returns nil if ctx
// ended, and an error if the lease was lost or another driver answers.
func (c *Controllers) Run(ctx context.Context) error {
	o := c.options
	c.enter("waiting for the driver")
	info, err := handshake(ctx, o.CSI, o.Node, o.Logger)
	if err != nil {
		return unless(ctx, fmt.Errorf("controllers: %w", err))
	}
	c.driver.Store(&info.name)
	info.scope.Labelled = o.Tuning.NodeObjectsOnly && !info.scope.Central()
	env, stop, err := c.newEnv(info)
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	defer stop()
	defer env.EndQueues()
	roles := info.roles(o.Wanted)
	if slices.Contains(roles, rights.Provision) && strings.HasPrefix(o.Intents, clusterNamespaces) {
		return fmt.Errorf("controllers: intents in namespace %s would need rights to every ConfigMap there, which configure the cluster; "+
			"create a namespace for intents alone and name it with --intents-namespace", o.Intents)
	}
	o.Logger.InfoContext(ctx, "serving Kubernetes", "driver", info.name, "controllers", roles, "node", info.scope.Node)
	if info.controller.Attach && !info.scope.Central() {
		o.Logger.WarnContext(ctx, "the driver has PUBLISH_UNPUBLISH_VOLUME, which needs a central process: "+
			"run one without --node-deployment and with --controllers=attach, or set attachRequired: false in the CSIDriver object")
	}
	c.logMissingRights(ctx, info.scope, roles)
	c.enter("filling the caches")
	controllers, err := c.build(ctx, env, info, roles)
	if err != nil {
		return unless(ctx, fmt.Errorf("controllers: %w", err))
	}
	c.env.Store(env)
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return watchDriver(working, env, info, c.reconnected) })
	group.Go(func() error { return freeAfterFill(working, env.Set, o.FreeMemory) })
	if env.Scope.Labelled && o.Elect {
		group.Go(func() error { return c.coordinate(working, env) })
	}
	group.Go(func() error {
		if c.elects(env) {
			env.Set.Suppress()
		}
		env.Set.Start(working)
		if err := env.Set.Wait(working); err != nil {
			return unless(working, err)
		}
		return c.lead(working, env, controllers)
	})
	return unless(ctx, group.Wait())
}

// unless returns err, or nil if ctx has ended: the error is its consequence then.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the purpose of the function
	}
	return err
}

// newEnv makes the environment that all controllers share.
func (c *Controllers) newEnv(info driverInfo) (*cluster.Env, func(), error) {
	o := c.options
	recorder, stop, err := newRecorder(o.Clients, info.name)
	if err != nil {
		return nil, nil, err
	}
	o.Clients.Core = migration.For(info.name).Clients(o.Clients.Core)
	set := cluster.NewSet(o.Clients, info.name, o.Namespace, o.Logger)
	if info.scope.Labelled {
		set.OnlyNode(info.scope.Node)
	}
	return &cluster.Env{
		Driver: info.name, Clients: o.Clients, Set: set,
		CSI: o.CSI, DriverNode: info.nodeID, Recorder: recorder, Scope: info.scope, Namespace: o.Namespace, Intents: o.Intents,
		LabelPolicy: cluster.LabelPolicy{Name: o.Tuning.NodeLabelPolicy}, Limits: o.Limits.All,
		Logger: o.Logger, Registerer: o.Registerer, Tracer: o.Tracer, Failpoints: o.Failpoints,
	}, stop, nil
}

// logMissingRights logs one line for each missing right. Without it the API server's
// first rejection would come much later, in the middle of an operation.
func (c *Controllers) logMissingRights(ctx context.Context, scope cluster.Scope, roles []Role) {
	o := c.options
	mode, needed := rights.Node, append(slices.Clone(roles), rights.Events)
	if scope.Central() {
		mode = rights.Central
		if o.Elect {
			needed = append(needed, rights.Lease)
		}
	}
	if scope.Labelled && o.Elect {
		needed = append(needed, rights.Lease, rights.Coordinate)
	}
	if slices.Contains(roles, rights.Provision) {
		needed = append(needed, rights.Intent)
		if o.Tuning.Capacity {
			needed = append(needed, rights.Capacity)
		}
		if o.Tuning.CrossNamespace {
			needed = append(needed, rights.CrossNamespace)
		}
	}
	if slices.Contains(roles, rights.Resize) {
		needed = append(needed, rights.Modify)
	}
	if scope.Labelled && o.Tuning.NodeLabelPolicy != "" {
		needed = append(needed, rights.LabelPolicy)
	}
	if o.NodeLabels != nil && scope.Central() {
		needed = append(needed, rights.NodeLabels)
	}
	checker := rights.Checker{
		Client: o.Clients.Core.AuthorizationV1(), Mode: mode, Namespace: o.Namespace, Intents: o.Intents,
	}
	checker.Report(ctx, o.Logger, needed...)
}

// controller runs one role.
type controller interface {
	Run(ctx context.Context) error
}

// lead runs the controllers, while this process holds the lease if there is one.
func (c *Controllers) lead(ctx context.Context, env *cluster.Env, controllers []controller) error {
	all := func(ctx context.Context) error {
		if err := env.Set.Notify(ctx); err != nil {
			return unless(ctx, err)
		}
		group, working := errgroup.WithContext(ctx)
		for _, one := range controllers {
			group.Go(func() error { return one.Run(working) })
		}
		return group.Wait()
	}
	if !c.elects(env) {
		return all(ctx)
	}
	return lease.Run(ctx, env, c.options.Lease, all)
}

// elects reports whether the process works only while it holds the lease.
func (c *Controllers) elects(env *cluster.Env) bool { return env.Scope.Central() && c.options.Elect }
