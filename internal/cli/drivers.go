package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	csiserver "github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/live"
	"github.com/holdfast-csi/holdfast/internal/kube/register"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// drainTimeout bounds the work after the sockets are closed: operations inside a system
// call, spans not sent.
const drainTimeout = 2 * time.Second

// driverConfig configures a driver in this process. The command driver fills it from
// its flags; a host that starts a driver fills it from its root directory.
type driverConfig struct {
	mode     csiserver.Mode
	endpoint string // of the CSI socket
	backend  string // a name of backendNames
	local    localConfig
	ebs      ebsConfig
	name     string // CSI plugin name; the backend's own when empty
	version  string
	nodeID   string // this machine's host name when empty
	// kubeletDir is the directory that target and staging paths are in.
	kubeletDir string
	// windowsHost says how a Windows node reaches its disks: auto, proxy or native.
	windowsHost string
	// registrationDir is where a kubelet or host looks for plugins; "" registers
	// nowhere. registrationPath is the CSI socket as it sees it; the path of
	// endpoint when empty.
	registrationDir, registrationPath string
	// registrationCheck is register.Options.RegisteredCheck.
	registrationCheck time.Duration
	metricsAddress    string // "" for none
	metricsTLS        telemetry.TLS
	metricsVolumes    uint   // with metrics of their own
	pprofAddress      string // "" for none
	// kubernetes runs the controllers in this process; nil does not.
	kubernetes *kubeFlags
	// kubeconfig and nodeName are for a node's own requests to Kubernetes, without the
	// controllers: for its Node object.
	kubeconfig, nodeName string
	removeTaint          bool // the startup taint, from this node
	logger               *slog.Logger
	registry             *prometheus.Registry // of the metrics; a new one when nil
	pools                *knownPools          // gets those of this driver, if set
	points               *failpoint.Set
	rest                 func() // releases memory of the process, if set
}

// driverProcess is a driver whose backend is open and recovered, and which
// serves when it is run.
type driverProcess struct {
	config       driverConfig
	backend      openBackend
	engine       engine // nil in mode controller
	watching     watching
	server       *csiserver.Server
	registration *register.Server  // nil when it registers nowhere
	controllers  *kube.Controllers // nil without Kubernetes
	taintClient  api.Kubernetes    // nil when no taint is to be removed
	registry     *prometheus.Registry
	tracing      *telemetry.Tracing
	host         *windowsHost // nil but on a Windows node
}

// engine is the node engine of a system.
type engine interface {
	csiserver.Engine
	// Wait returns when no operation runs any more.
	Wait(ctx context.Context) error
}

// newDriver opens the backend, recovers from a crash, and builds the servers. Call Run
// afterwards, or Close.
func newDriver(ctx context.Context, c driverConfig) (*driverProcess, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	opened, err := openBackendOf(ctx, c)
	if err != nil {
		return nil, err
	}
	d := &driverProcess{config: c, backend: opened, registry: c.registry}
	if err := d.build(ctx); err != nil {
		return nil, errors.Join(err, d.Close(ctx))
	}
	return d, nil
}

func (c driverConfig) withDefaults() (driverConfig, error) {
	c.mode = cmp.Or(c.mode, csiserver.All)
	c.kubeletDir = cmp.Or(c.kubeletDir, defaultKubeletDir)
	c.registry = cmp.Or(c.registry, metrics.NewRegistry(c.version))
	endpoint, err := csiserver.ParseEndpoint(c.endpoint)
	if err != nil {
		return c, &UsageError{Err: err}
	}
	if c.registrationPath = cmp.Or(c.registrationPath, endpoint.Path); c.registrationDir != "" &&
		c.registrationPath == "" {
		return c, usageErrorf("--registration-dir: a kubelet reaches no driver at %s", c.endpoint)
	}
	if c.nodeID != "" || c.backend == backendEBS { // an instance knows its ID by its metadata
		return c, nil
	}
	if c.nodeID, err = os.Hostname(); err != nil {
		return c, fmt.Errorf("host name for the node ID: %w; give --node-id", err)
	}
	return c, nil
}

func (d *driverProcess) build(ctx context.Context) error {
	guarded := guard.New(d.backend.controller)
	o := csiserver.Options{
		Mode: d.config.mode, Name: d.config.name, Version: d.config.version, Endpoint: d.config.endpoint,
		Traits: guarded.Traits(), Features: guarded.Features(), Guard: guarded, NodeID: d.config.nodeID,
		Logger: d.config.logger, Registerer: d.registry, Rest: d.config.rest,
	}
	var err error
	if d.config.mode != csiserver.Controller {
		if d.engine, err = d.newEngine(ctx, guarded.Traits()); err != nil {
			return err
		}
		o.Engine = d.engine
	}
	if d.tracing, err = telemetry.NewTracing(ctx, driverService, d.config.version); err != nil {
		return err
	}
	o.Tracing = d.tracing.Provider()
	if d.server, err = csiserver.New(o); err != nil {
		return err
	}
	if err = d.watch(cmp.Or(d.config.name, guarded.Traits().DriverName)); err != nil {
		return err
	}
	if err = errors.Join(d.buildRegistration(guarded.Traits()), d.buildStartupTaint()); err != nil ||
		d.config.kubernetes == nil {
		return err
	}
	return d.buildControllers(guarded.Features().Attach)
}

// buildControllers calls the driver without a socket. Where volumes are
// attached by a controller, one process acts for all nodes; where they are not,
// they belong to a node, and its own process acts for them.
func (d *driverProcess) buildControllers(attaches bool) (err error) {
	connection := client.NewInProcess(d.server.Intercept)
	d.server.Register(connection)
	k := d.config.kubernetes
	name := cmp.Or(d.config.name, d.backend.controller.Traits().DriverName)
	parts := kubeParts{
		version: d.config.version, logger: d.config.logger, registerer: d.registry, tracer: d.tracing.Tracer(), points: d.config.points,
		merges: d.backend.controller.Traits().MergesChanges, metricsVolumes: int(d.config.metricsVolumes),
		client: client.New(connection, client.Options{
			Driver: name, Logger: d.config.logger, Timeout: k.limits.LongestTimeout(),
			Observe: kube.CallMetrics(d.registry, name),
		}),
	}
	if labeler, ok := d.backend.controller.(backend.NodeLabeler); ok && d.config.ebs.labelNodes {
		parts.nodeLabels = labeler.NodeLabels
	}
	if !attaches && d.engine != nil {
		parts.node = cmp.Or(k.node, d.config.nodeID)
	}
	d.controllers, err = k.controllers(parts)
	return err
}

func (d *driverProcess) newEngine(ctx context.Context, traits backend.Traits) (engine, error) {
	if d.backend.windows != nil {
		return d.newWindowsEngine(ctx, traits)
	}
	engine, err := node.New(node.Options{
		Backend: d.backend.node, KubeletDir: d.config.kubeletDir, Forbidden: d.backend.forbidden,
		Logger: d.config.logger, Failpoints: d.config.points, Traits: traits,
	})
	if err != nil {
		return nil, err
	}
	if err := engine.Recover(ctx); err != nil {
		return nil, fmt.Errorf("recover the volumes of this node: %w", err)
	}
	return engine, nil
}

// buildRegistration registers only where there is a Node service: the kubelet
// asks for NodeGetInfo at once.
func (d *driverProcess) buildRegistration(traits backend.Traits) (err error) {
	if d.config.registrationDir == "" || d.engine == nil {
		return nil
	}
	d.registration, err = register.New(register.Options{
		Directory: d.config.registrationDir, Driver: cmp.Or(d.config.name, traits.DriverName),
		Endpoint: d.config.registrationPath, Logger: d.config.logger, RegisteredCheck: d.config.registrationCheck,
	})
	return err
}

// Run serves until ctx ends, drains the calls in flight and closes the backend.
func (d *driverProcess) Run(ctx context.Context) error {
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { return d.server.Run(serving) })
	if d.registration != nil {
		group.Go(func() error { return d.register(serving) })
	}
	if d.taintClient != nil {
		group.Go(func() error { return d.removeStartupTaint(serving) })
	}
	if d.controllers != nil {
		group.Go(func() error { return d.controllers.Run(serving) })
	}
	if d.config.metricsAddress != "" {
		group.Go(func() error { return d.pages().page().Run(serving) })
	}
	if d.config.pprofAddress != "" {
		group.Go(func() error {
			return telemetry.Profiles{Address: d.config.pprofAddress, Logger: d.config.logger}.Run(serving)
		})
	}
	return errors.Join(group.Wait(), d.Close(ctx))
}

func (d *driverProcess) pages() *pages {
	p := &pages{
		address: d.config.metricsAddress, tls: d.config.metricsTLS, registry: d.registry, logger: d.config.logger,
		probe: d.server.Probe,
	}
	if d.registration != nil {
		p.facts = append(p.facts, live.Fact{Name: "registration", Describe: d.registration.Describe})
	}
	if d.controllers != nil {
		p.controlled(d.controllers, d.config.kubernetes.limits.LongestTimeout())
		if state := d.config.kubernetes.lease.State; state != nil {
			p.electing(state)
		}
	}
	return p
}

// register waits for the CSI socket: the kubelet calls back as soon as it sees
// the registration.
func (d *driverProcess) register(ctx context.Context) error {
	select {
	case <-d.server.Ready():
		return d.registration.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// Close gives the backend up, whether ctx has ended or not. Run calls it; call
// it only when Run is not.
func (d *driverProcess) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if d.engine != nil {
		if err := d.engine.Wait(ctx); err != nil {
			d.config.logger.Warn("ending while node operations run", "error", err)
		}
	}
	closeTraces(ctx, d.tracing, d.config.logger)
	if err := d.watching.close(ctx); err != nil {
		d.config.logger.Warn("ending while the storage is asked for its state", "error", err)
	}
	return errors.Join(d.closeHost(), d.backend.close())
}
