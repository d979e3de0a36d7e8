package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/service"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
)

func newRunCommand(stamped string, machine Machine) *cobra.Command {
	c := config{machine: machine, version: stamped}
	command := &cobra.Command{
		Use:   "run",
		Short: "Serve the pipes, in the foreground or as the service",
		Args:  none,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			return c.run(command.Context(), stamped, command.ErrOrStderr())
		},
	}
	command.Flags().AddFlagSet(c.flags())
	return command
}

// run serves until ctx ends or, as a service, until it is stopped.
func (c *config) run(ctx context.Context, stamped string, stderr io.Writer) (err error) {
	log, end, err := c.openLog(stderr)
	if err != nil {
		return err
	}
	defer end()
	log.Info("csi-proxy starts", service.Always, slog.String("version", stamped),
		slog.String("kubelet-path", c.kubeletPath), slog.Any("working-dir", c.workingDirs))
	defer func() {
		if err != nil {
			log.Error("csi-proxy ends", "error", err)
			return
		}
		log.Info("csi-proxy has stopped", service.Always)
	}()
	if !c.windowsService {
		return c.serve(ctx, log, func() {})
	}
	return service.Run(c.serviceName, stopTime, func(ctx context.Context, ready func()) error {
		return c.serve(ctx, log, ready)
	})
}

// openLog returns the log, and the function that closes it.
func (c *config) openLog(stderr io.Writer) (*slog.Logger, func(), error) {
	var closing []io.Closer
	end := func() {
		for _, closer := range closing {
			_ = closer.Close()
		}
	}
	to := stderr
	if c.log.file != "" {
		file, err := openLogFile(c.log.file, logLimit)
		if err != nil {
			return nil, nil, err
		}
		if err := keepCrash(c.log.file + ".crash"); err != nil {
			return nil, nil, err
		}
		to, closing = file, append(closing, file)
	}
	log, err := c.log.logger(to)
	if err != nil || !c.windowsService {
		return log, end, err
	}
	events, err := service.OpenEvents(c.serviceName)
	if err != nil { // the service works without it
		log.Error("the event log gets no events of csi-proxy", "error", err)
		return log, end, nil
	}
	closing = append(closing, events)
	return service.WithEvents(log, events), end, nil
}

// versions returns all versions of this binary: the API of the KEP, then the groups, each
// from the newest.
func versions() []api.Definition {
	return slices.Concat(csiproxy.Versions(), groups.Versions())
}

// serve serves the pipes and the pages until ctx ends.
func (c *config) serve(ctx context.Context, log *slog.Logger, ready func()) error {
	rules, err := paths.New(c.kubeletPath, c.workingDirs...)
	if err != nil {
		return err
	}
	machine, err := c.machine.Open(log)
	if err != nil {
		return fmt.Errorf("this machine's storage: %w", err)
	}
	stateDir := c.stateDir
	if machine.Volatile {
		stateDir = ""
	}
	h, err := host.New(host.Options{
		Machine: machine.Calls, Rules: rules, Services: c.services, RequirePrivacy: c.requirePrivacy, StateDir: stateDir, Logger: log,
	})
	if err != nil {
		return err
	}
	defer h.Close()
	transport, err := server.NewTransport()
	if err != nil {
		return err
	}
	registry := metrics.NewRegistry(c.version)
	pipes, err := server.New(server.Options{ //nolint:contextcheck // calls have contexts of their own
		Versions: versions(), Host: h.API(), Transport: transport, AllowSIDs: c.sids, NeedsOne: c.exitIfTaken,
		Limits: server.Limits{Drain: drain}, Logger: log, Registerer: registry,
	})
	if err != nil {
		return err
	}
	pages := machine.Pages
	if c.metricsAddress != "" {
		handlers := pipes.Handlers()
		handlers["/metrics"] = metrics.Handler(registry)
		pages = append(pages, Page{Flag: "--metrics-bind-address", Address: c.metricsAddress, Handlers: handlers})
	}
	sites, err := openAll(ctx, pages, log)
	if err != nil {
		return err
	}
	return together(ctx, pipes, sites, ready)
}

// together runs the pipes and the sites; the end of one ends all.
func together(ctx context.Context, pipes *server.Server, sites []*site, ready func()) error {
	group, ctx := errgroup.WithContext(ctx)
	ended := errors.New("the pipes have ended")
	for _, s := range sites {
		group.Go(func() error { return s.run(ctx) })
	}
	group.Go(func() error {
		if err := pipes.Run(ctx); err != nil {
			return err
		}
		return ended
	})
	group.Go(func() error {
		select {
		case <-pipes.Ready():
			ready()
		case <-ctx.Done():
		}
		return nil
	})
	if err := group.Wait(); !errors.Is(err, ended) {
		return err
	}
	return nil
}
