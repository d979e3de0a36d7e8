package host

import (
	"context"
	"errors"
	"fmt"
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
	// VolumePlugin, if given, is the path of a socket for Docker and Podman.
	VolumePlugin string
	// Run is for a host that serves one run of pods in the same process: other
	// processes do not find its API, and it starts no drivers from unit files,
	// makes no backups and publishes no CSINode.
	Run bool
	// Ready is called when what ran before is adopted and the API answers.
	Ready func()
	// Rest is called when nothing has been done for some time after something
	// was: what that needed can be given back.
	Rest func()
}

// quiet is how long nothing is done before Rest is called.
const quiet = 10 * time.Second

// Socket is where the API is.
func (h *Host) Socket() string { return filepath.Join(h.paths.Root, api.SocketName) }

func (h *Host) newPods() *pods.Manager {
	return pods.New(pods.Options{
		Store: h.store, Volumes: h.volumes, Paths: h.paths, BootID: h.bootID, NodeName: h.nodeName(),
		Private: h.options.Private, Logger: h.options.Logger, Failpoints: h.options.Failpoints, Record: h.journal.Record,
		Placed: h.placeBinds, Displace: h.removeBinds,
		Requeue: func(key string) { h.set.Queue(pods.ControllerName).Add(key) },
	})
}

// served is what the API serves, and where.
func (h *Host) served(options DaemonOptions) api.Options {
	served := api.Options{
		Store: h.store, Journal: h.journal, Host: h, Logger: h.options.Logger, Version: options.Version,
		Group: options.Group, ReadGroup: options.ReadGroup,
	}
	if options.Run {
		served.SocketName = api.RunSocketName
	}
	return served
}

// Serve is the daemon: it takes over what runs, serves the API, and brings
// every object to what is wanted until the context ends. Volumes stay mounted
// and pods go on when it returns; the next one adopts them.
func (h *Host) Serve(ctx context.Context, options DaemonOptions) error {
	if !options.Run {
		h.backUp(ctx) // before anything changes
	}
	if err := h.startAll(ctx); err != nil {
		return err
	}
	if options.Run { // it does not wait for a driver that comes later
		h.plugins.Settle(ctx)
	}
	if err := h.volumes.Adopt(ctx); err != nil {
		return fmt.Errorf("take over what an earlier host left: %w", err)
	}
	h.pods = h.newPods()
	h.set = reconcile.NewSet(h.store, slices.Concat(h.volumes.Controllers(), h.volumes.NodeControllers(), []reconcile.Controller{h.pods.Controller()})...)
	if options.Rest != nil {
		h.set.Rest(quiet, options.Rest)
	}
	if !options.Run {
		h.supervisor = h.newSupervisor()
	}
	if err := errors.Join(h.endUnanswered(ctx), h.endDeadHolds(ctx)); err != nil {
		return fmt.Errorf("find the holds that no caller has: %w", err)
	}
	served := h.served(options)
	// Both sockets take connections before the host says that it is ready, and the
	// host's own is the last.
	plugin, err := listenPlugin(ctx, options.VolumePlugin)
	if err != nil {
		return err
	}
	listener, err := api.Listen(ctx, h.paths.Root, served)
	if err != nil {
		err = fmt.Errorf("the socket of the host: %w", err)
		if plugin != nil {
			err = errors.Join(err, plugin.Close())
		}
		return err
	}
	server := api.NewServer(served)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return h.set.Run(ctx) })
	group.Go(func() error { return h.followDrivers(ctx) })
	for name, service := range h.serving {
		group.Go(func() error { return service.wait(ctx, name) })
	}
	if !options.Run {
		group.Go(func() error { h.publishNode(ctx); return nil })
		group.Go(func() error { h.keepBackups(ctx); return nil })
		group.Go(func() error { return h.supervisor.Run(ctx) })
	}
	group.Go(func() error { return h.followLeases(ctx) })
	group.Go(func() error { return h.servePlugin(ctx, plugin) })
	group.Go(func() error { return server.Serve(ctx, listener) })
	if options.Ready != nil {
		options.Ready()
	}
	err = errors.Join(group.Wait(), h.pods.Close())
	if !options.Run {
		h.backUp(context.WithoutCancel(ctx)) // of the last state, which the next start may not find
	}
	return err
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

// newSupervisor makes what runs the drivers that have unit files.
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
