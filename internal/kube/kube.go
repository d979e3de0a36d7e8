// Package kube is the Kubernetes door: the controllers that stand in for the
// sidecars of a CSI driver, in one process, over one set of caches and one
// lease. It sees the driver through package csi/client only, so that it serves
// Holdfast's own driver by function calls and anybody's over a socket.
package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/rights"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
)

// clusterNamespaces begins the names of the namespaces of Kubernetes itself.
const clusterNamespaces = "kube-"

// Options of the controllers of one driver.
type Options struct {
	Clients cluster.Clients
	// CSI calls the driver. Its Disconnected must call Reconnect.
	CSI *client.Client
	// Node is the name of the node whose objects this process alone acts on; ""
	// means that it acts on all, and holds the lease while it does.
	Node string
	// Namespace and Pod are this process's own.
	Namespace, Pod string
	// Intents is the namespace of its intents; "" means Namespace.
	Intents string
	// MergesChanges: the driver makes one change of a volume's expansion and its
	// modification when both reach it at once. CSI has no word for that.
	MergesChanges bool
	// Wanted are the roles to play, as far as the driver can; nil means all.
	Wanted []Role
	// Lease says how the one that acts is chosen; unused on a node.
	Lease   lease.Options
	Elect   bool
	Tuning  Tuning
	Workers int // per queue; 0 means work.DefaultWorkers
	Retry   work.Retry
	Timeout time.Duration // of one call of the driver; 0 means cluster.DefaultTimeout

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Failpoints *failpoint.Set
}

// Controllers are the controllers of one driver.
type Controllers struct {
	options     Options
	reconnected chan struct{}
	phase       atomic.Pointer[string]
	env         atomic.Pointer[cluster.Env]
	driver      atomic.Pointer[string]
}

// New prepares the controllers; nothing is read or written before Run.
func New(o Options) (*Controllers, error) {
	for _, role := range o.Wanted {
		if !slices.Contains(Roles(), role) {
			return nil, fmt.Errorf("there is no controller %q; there are %v", role, Roles())
		}
	}
	if o.Wanted == nil {
		o.Wanted = Roles()
	}
	if o.Namespace == "" {
		return nil, errors.New("the process's own namespace is not known; give --namespace or set POD_NAMESPACE")
	}
	o.Intents = cmp.Or(o.Intents, o.Namespace)
	o.Logger = o.Logger.With("component", "kubernetes")
	c := &Controllers{options: o, reconnected: make(chan struct{}, 1)}
	c.enter("starting")
	return c, nil
}

// Reconnect is to be called whenever the connection to the driver was lost. It
// does not block.
func (c *Controllers) Reconnect() {
	select {
	case c.reconnected <- struct{}{}:
	default:
	}
}

// Driver is the driver's name once it is known.
func (c *Controllers) Driver() string {
	if name := c.driver.Load(); name != nil {
		return *name
	}
	return ""
}

func (c *Controllers) enter(phase string) { c.phase.Store(&phase) }

// Describe says in words what the controllers are at, and an error while they
// cannot do their work: a process that stands by for the lease with filled
// caches can.
func (c *Controllers) Describe() (words string, err error) {
	env := c.env.Load()
	if env == nil || !env.Set.Synced() {
		return "", errors.New(*c.phase.Load())
	}
	return "serving " + env.Driver + ", the caches are filled", nil
}

// Stuck names the queue whose workers have all been busy the longest without
// one of them coming to an end, and for how long; 0 when no queue is so.
func (c *Controllers) Stuck() (queue string, since time.Duration) {
	if env := c.env.Load(); env != nil {
		return env.Stuck()
	}
	return "", 0
}

// Run meets the driver, fills the caches and works until ctx ends, while this
// process holds the lease if there is one. It returns nil when ctx ended, and
// an error when it cannot go on: the lease was lost, or another driver answers.
func (c *Controllers) Run(ctx context.Context) error {
	o := c.options
	c.enter("waiting for the driver")
	met, err := meet(ctx, o.CSI, o.Node, o.Logger)
	if err != nil {
		return unless(ctx, fmt.Errorf("controllers: %w", err))
	}
	c.driver.Store(&met.name)
	env, stop, err := c.newEnv(met)
	if err != nil {
		return fmt.Errorf("controllers: %w", err)
	}
	defer stop()
	roles := met.chosen(o.Wanted)
	if slices.Contains(roles, rights.Provision) && strings.HasPrefix(o.Intents, clusterNamespaces) {
		return fmt.Errorf("controllers: intents in namespace %s would need rights to every ConfigMap there, which configure the cluster; "+
			"make a namespace for intents alone and name it with --intents-namespace", o.Intents)
	}
	o.Logger.InfoContext(ctx, "serving Kubernetes", "driver", met.name, "controllers", roles, "node", met.scope.Node)
	if met.controller.Attach && !met.scope.Central() {
		o.Logger.WarnContext(ctx, "the driver attaches volumes (PUBLISH_UNPUBLISH_VOLUME), which no node does for itself: "+
			"run one process without node deployment with --controllers=attach, or set attachRequired: false in the CSIDriver object")
	}
	c.sayMissingRights(ctx, met.scope, roles)
	c.enter("filling the caches")
	running, err := c.build(ctx, env, met, roles)
	if err != nil {
		return unless(ctx, fmt.Errorf("controllers: %w", err))
	}
	c.env.Store(env)
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return watchDriver(working, env, met, c.reconnected) })
	group.Go(func() error { return giveBack(working, env.Set) })
	group.Go(func() error {
		if c.elects(env) {
			env.Set.Suppress()
		}
		env.Set.Start(working)
		if err := env.Set.Wait(working); err != nil {
			return unless(working, err)
		}
		return c.lead(working, env, running)
	})
	return unless(ctx, group.Wait())
}

// unless drops the error of what ended because it was told to.
func unless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is what it is for
	}
	return err
}

// newEnv makes what all controllers share.
func (c *Controllers) newEnv(met facts) (*cluster.Env, func(), error) {
	o := c.options
	recorder, stop, err := newRecorder(o.Clients, met.name)
	if err != nil {
		return nil, nil, err
	}
	return &cluster.Env{
		Driver: met.name, Clients: o.Clients, Set: cluster.NewSet(o.Clients, met.name, o.Namespace, o.Logger),
		CSI: o.CSI, DriverNode: met.nodeID, Recorder: recorder, Scope: met.scope, Namespace: o.Namespace, Intents: o.Intents, Retry: o.Retry, Workers: o.Workers,
		Timeout: o.Timeout, Logger: o.Logger, Registerer: o.Registerer, Failpoints: o.Failpoints,
	}, stop, nil
}

// sayMissingRights writes one line for each right that is not there: without
// it, the first refusal comes much later, and in the middle of something.
func (c *Controllers) sayMissingRights(ctx context.Context, scope cluster.Scope, roles []Role) {
	o := c.options
	mode, needed := rights.Node, append(slices.Clone(roles), rights.Events)
	if scope.Central() {
		mode = rights.Central
		if o.Elect {
			needed = append(needed, rights.Lease)
		}
	}
	if slices.Contains(roles, rights.Provision) {
		needed = append(needed, rights.Intent)
		if o.Tuning.Capacity {
			needed = append(needed, rights.Capacity)
		}
	}
	if slices.Contains(roles, rights.Resize) {
		needed = append(needed, rights.Modify)
	}
	checker := rights.Checker{Client: o.Clients.Core.AuthorizationV1(), Mode: mode, Namespace: o.Namespace, Intents: o.Intents}
	checker.Report(ctx, o.Logger, needed...)
}

// controller is one role at work.
type controller interface {
	Run(ctx context.Context) error
}

// lead runs the controllers, while the lease is held where there is one.
func (c *Controllers) lead(ctx context.Context, env *cluster.Env, running []controller) error {
	all := func(ctx context.Context) error {
		if err := env.Set.Notify(ctx); err != nil {
			return unless(ctx, err)
		}
		group, working := errgroup.WithContext(ctx)
		for _, one := range running {
			group.Go(func() error { return one.Run(working) })
		}
		return group.Wait()
	}
	if !c.elects(env) {
		return all(ctx)
	}
	return lease.Run(ctx, env, c.options.Lease, all)
}

// elects tells whether the process works only while it holds the lease.
func (c *Controllers) elects(env *cluster.Env) bool { return env.Scope.Central() && c.options.Elect }
