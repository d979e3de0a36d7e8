package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/live"
	"github.com/holdfast-csi/holdfast/internal/kube/register"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// sidecarsProcess is the command sidecars at work. Its health can be asked from
// the start: a driver that takes long to come must not get its sidecars killed.
type sidecarsProcess struct {
	flags    *sidecarsFlags
	registry *prometheus.Registry
	// first is the connection from before the driver's name was known.
	first *csiclient.Client
	// These are set when the driver's name is known.
	controllers  atomic.Pointer[kube.Controllers]
	registration atomic.Pointer[register.Server]
}

func newSidecarsProcess(f *sidecarsFlags) (*sidecarsProcess, error) {
	f.kube.leaseOf(f.node()) // before two goroutines ask
	first, err := csiclient.Dial(f.address, csiclient.Options{Logger: f.logger})
	if err != nil {
		return nil, &UsageError{Err: fmt.Errorf("--csi-address: %w", err)}
	}
	return &sidecarsProcess{flags: f, registry: metrics.NewRegistry(f.version), first: first}, nil
}

// Run serves until ctx ends.
func (s *sidecarsProcess) Run(ctx context.Context) error {
	defer s.first.Close() //nolint:errcheck // no call follows
	group, serving := errgroup.WithContext(ctx)
	if s.flags.metricsAddress != "" {
		group.Go(func() error { return s.pages().page().Run(serving) })
	}
	if s.flags.driverAddress != "" {
		group.Go(func() error { return s.pages().driverPage(s.flags.driverAddress).Run(serving) })
	}
	if s.flags.pprofAddress != "" {
		group.Go(func() error {
			return telemetry.Profiles{Address: s.flags.pprofAddress, Logger: s.flags.logger}.Run(serving)
		})
	}
	group.Go(func() error { return s.serve(serving) })
	return group.Wait()
}

// serve asks the driver for its name, which metrics and registration need, and
// then runs everything else.
func (s *sidecarsProcess) serve(ctx context.Context) error {
	f := s.flags
	name := s.driverName(ctx)
	if name == "" {
		return nil // ctx has ended
	}
	client, err := csiclient.Dial(f.address, csiclient.Options{
		Driver: name, Logger: f.logger, Timeout: f.kube.limits.LongestTimeout(), Observe: kube.CallMetrics(s.registry, name),
		Disconnected: func() {
			if controllers := s.controllers.Load(); controllers != nil {
				controllers.Reconnect()
			}
		},
	})
	if err != nil {
		return &UsageError{Err: fmt.Errorf("--csi-address: %w", err)}
	}
	defer client.Close() //nolint:errcheck // no call follows
	group, serving := errgroup.WithContext(ctx)
	if f.registrationDir != "" {
		group.Go(func() error { return s.register(serving, name) })
	}
	if !f.registersOnly() {
		group.Go(func() error { return s.control(serving, client) })
	}
	return group.Wait()
}

// control runs the controllers.
func (s *sidecarsProcess) control(ctx context.Context, client *csiclient.Client) error {
	f := s.flags
	traces, err := telemetry.NewTracing(ctx, sidecarsService, f.version)
	if err != nil {
		return err
	}
	defer closeTraces(ctx, traces, f.logger)
	parts := kubeParts{
		version: f.version, client: client, node: f.node(), logger: f.logger, registerer: s.registry, tracer: traces.Tracer(), points: f.points,
	}
	controllers, err := f.kube.controllers(parts)
	if err != nil {
		return err
	}
	s.controllers.Store(controllers)
	return controllers.Run(ctx)
}

// driverName waits for the driver and asks its name; "" when ctx ended first.
func (s *sidecarsProcess) driverName(ctx context.Context) string {
	for logged := false; ; logged = true {
		info, err := s.first.PluginInfo(ctx)
		if err == nil && info.GetName() != "" {
			return info.GetName()
		}
		if !logged {
			s.flags.logger.InfoContext(ctx, "waiting for the driver", "socket", s.flags.address, "error", err)
		}
		if concurrency.Sleep(ctx, handshakePause) != nil {
			return ""
		}
	}
}

func (s *sidecarsProcess) register(ctx context.Context, driver string) error {
	f := s.flags
	path, err := csiclient.SocketPath(cmp.Or(f.registrationPath, f.address))
	if err != nil {
		return &UsageError{Err: fmt.Errorf("--kubelet-registration-path: %w", err)}
	}
	registration, err := register.New(register.Options{
		Directory: f.registrationDir, Driver: driver, Endpoint: path, Logger: f.logger,
	})
	if err != nil {
		return &UsageError{Err: err}
	}
	s.registration.Store(registration)
	return registration.Run(ctx)
}

func (s *sidecarsProcess) pages() *pages {
	f := s.flags
	p := &pages{address: f.metricsAddress, registry: s.registry, logger: f.logger, probe: s.first.Probe,
		probeTimeout: f.probeTimeout}
	if f.registrationDir != "" {
		p.facts = append(p.facts, live.Fact{Name: "registration", Describe: func() (string, error) {
			return describe(s.registration.Load())
		}})
	}
	if f.registersOnly() {
		return p
	}
	p.controlled(s, f.kube.limits.LongestTimeout())
	if state := f.kube.leaseOf(f.node()); state != nil {
		p.electing(state)
	}
	return p
}

// Describe is that of the controllers.
func (s *sidecarsProcess) Describe() (words string, err error) { return describe(s.controllers.Load()) }

// describe returns the state of a part of the process that may not exist yet.
func describe[T any, P interface {
	*T
	Describe() (words string, err error)
}](part P) (words string, err error) {
	if part == nil {
		return "", errors.New("waiting for the driver to report its name")
	}
	return part.Describe()
}

// Stuck is that of the controllers.
func (s *sidecarsProcess) Stuck() (queue string, since time.Duration) {
	if controllers := s.controllers.Load(); controllers != nil {
		return controllers.Stuck()
	}
	return "", 0
}
