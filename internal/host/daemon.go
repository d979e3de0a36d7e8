package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/supervise"
)

// DaemonOptions say how a host serves.
type DaemonOptions struct {
	Version string
	// Group and ReadGroup are those of api.Options.
	Group, ReadGroup *uint32
	// Status, if given, is the status page, which the API's socket serves too.
	Status http.Handler
	// Pools, if given, returns the state of the pools of built-in drivers.
	Pools func() []api.Pool
	// Servers run next to the controllers until the context ends; an error ends the host.
	Servers []func(context.Context) error
	// VolumePlugin, if given, is the path of a socket for Docker and Podman.
	VolumePlugin string
	// PluginListener, if given, is that socket, which a service manager opened.
	PluginListener net.Listener
	// Ready is called when the running pods and drivers are adopted and the API answers.
	Ready func()
}

// restAfter is the idle time after which Options.Rest is called.
const restAfter = 10 * time.Second

// Socket is the path of the API's socket.
func (h *Host) Socket() string { return filepath.Join(h.paths.Root, api.SocketName) }

// runSocket is that of the API of a run.
func (h *Host) runSocket() string { return filepath.Join(h.paths.Root, api.RunSocketName) }

func (h *Host) newPods() *pods.Manager {
	return pods.New(pods.Options{
		Store: h.store, Volumes: h.volumes, Paths: h.paths, BootID: h.bootID, NodeName: h.nodeName(),
		Containers: h.options.Machine.Containers,
		Private:    h.options.Private, Logger: h.options.Logger, Failpoints: h.options.Failpoints, Record: h.journal.Record,
		Mounted: h.makeBinds, Unmounting: h.removeBinds,
		Ready:   func() { h.set.Notify() },
		Requeue: func(key string) { h.set.Queue(pods.ControllerName).Add(key) },
	})
}

// Serve is the daemon: it adopts the processes that an earlier host started, serves the
// API, and reconciles every object until the context ends. Volumes stay mounted and
// pods keep running when it returns; the next host adopts them.
func (h *Host) Serve(ctx context.Context, options DaemonOptions) error {
	h.backUp(ctx) // before anything changes
	if err := h.startAll(ctx); err != nil {
		return err
	}
	if err := h.adopt(ctx); err != nil {
		return err
	}
	h.supervisor = h.newSupervisor()
	if err := h.registerMetrics(); err != nil {
		return err
	}
	// Both sockets take connections before the host says that it is ready, and the
	// host's own is the last.
	plugin, err := h.listenPlugin(ctx, options)
	if err != nil {
		return err
	}
	served, err := h.listen(ctx, h.Socket(), api.Options{
		Version: options.Version, Group: options.Group, ReadGroup: options.ReadGroup, Status: options.Status,
		Pools: options.Pools,
	})
	if err != nil {
		return errors.Join(err, plugin.close())
	}
	parts := []part{served, plugin.serve, h.publishNode, h.keepBackups, h.supervisor.Run}
	for _, serve := range options.Servers {
		parts = append(parts, serve)
	}
	err = h.reconcile(ctx, options.Ready, parts...)
	h.backUp(context.WithoutCancel(ctx)) // of the last state, which the next start may not find
	return err
}

// Work is Serve without sockets, supervised drivers and backups: it adopts what an earlier
// host left, and reconciles every object until the context ends. The caller uses the methods
// of the host. ready is called when they may be called.
func (h *Host) Work(ctx context.Context, ready func()) error {
	if err := errors.Join(h.startAll(ctx), h.adopt(ctx)); err != nil {
		return err
	}
	return h.reconcile(ctx, ready, h.publishNode)
}

// serveRun serves one run of pods in the same process, at a socket that other
// processes do not look for. It starts no drivers from unit files, makes no
// backups and publishes no CSINode.
func (h *Host) serveRun(ctx context.Context, ready func()) error {
	if err := h.startAll(ctx); err != nil {
		return err
	}
	h.plugins.WaitAttempts(ctx) // a run does not wait for a driver that comes later
	if err := h.adopt(ctx); err != nil {
		return err
	}
	served, err := h.listen(ctx, h.runSocket(), api.Options{})
	if err != nil {
		return err
	}
	return h.reconcile(ctx, ready, served)
}

// part is one of the things that a host does at the same time. It returns when
// the context ends; an error ends the host.
type part func(ctx context.Context) error

// adopt takes over the volumes and pods of an earlier host, and makes the
// controllers.
func (h *Host) adopt(ctx context.Context) error {
	if err := h.volumes.Adopt(ctx); err != nil {
		return fmt.Errorf("adopt the volumes of an earlier host: %w", err)
	}
	h.pods = h.newPods()
	h.set = reconcile.NewSet(h.store, slices.Concat(
		h.volumes.Controllers(), h.volumes.NodeControllers(), []reconcile.Controller{h.pods.Controller()})...)
	h.set.Failpoints(h.options.Failpoints)
	if h.options.Rest != nil {
		h.set.Rest(restAfter, h.options.Rest)
	}
	if err := errors.Join(h.endUnanswered(ctx), h.endDeadHolds(ctx)); err != nil {
		return fmt.Errorf("end the holds whose callers are gone: %w", err)
	}
	return nil
}

// listen makes a socket of the API, and returns what serves it.
func (h *Host) listen(ctx context.Context, socket string, options api.Options) (part, error) {
	options.Store, options.Journal, options.Host, options.Logger = h.store, h.journal, h, h.options.Logger
	listener, err := api.Listen(ctx, socket, options)
	if err != nil {
		return nil, fmt.Errorf("the socket of the host: %w", err)
	}
	return func(ctx context.Context) error { return api.NewServer(options).Serve(ctx, listener) }, nil
}

// reconcile runs the controllers, the watchers of drivers and leases, and the other
// parts. It returns when all have ended: with the context, or because one failed.
func (h *Host) reconcile(ctx context.Context, ready func(), parts ...part) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range append(parts, h.set.Run, h.followDrivers, h.followLeases) {
		group.Go(func() error { return run(ctx) })
	}
	for name, service := range h.serving {
		group.Go(func() error { return service.wait(ctx, name) })
	}
	if ready != nil {
		ready()
	}
	return errors.Join(group.Wait(), h.pods.Close())
}

// startAll serves every built-in driver.
func (h *Host) startAll(ctx context.Context) error {
	var failed []error
	for _, builtin := range h.options.Builtins {
		if err := h.offer(builtin); err != nil {
			return err
		}
		failed = append(failed, h.startBuiltin(ctx, builtin))
	}
	return errors.Join(failed...)
}

// wait ends with an error when a built-in driver does not serve any more: a host
// that is started again is better than one without its driver.
func (s *service) wait(ctx context.Context, name string) error {
	select {
	case <-s.ended:
		return fmt.Errorf("driver %s ended: %w", name, s.err)
	case <-ctx.Done():
		return nil
	}
}

// newSupervisor returns the supervisor of the drivers that have unit files.
func (h *Host) newSupervisor() *supervise.Supervisor {
	return supervise.New(supervise.Options{
		Root: h.paths.Root, NodeName: h.nodeName(), BootID: h.bootID, Registry: h.plugins, Logger: h.options.Logger,
	})
}

// followDrivers has what failed tried again when a driver comes or goes.
func (h *Host) followDrivers(ctx context.Context) error {
	for {
		changed := h.plugins.Changed()
		h.set.Retry()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
