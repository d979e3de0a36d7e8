package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// bindHostMetrics declares the flags of the host's page of metrics.
func bindHostMetrics(flags *pflag.FlagSet, address *string, tls *telemetry.TLS) {
	bindMetrics(flags, address, tls)
	flags.Lookup("metrics-address").Usage = "`[HOST]:PORT` with /metrics of the host and of its own driver, /healthz and /readyz; " +
		"without HOST on 127.0.0.1 (default: none)"
}

// hostPage is the page of metrics and health of a host.
type hostPage struct {
	address  string
	tls      telemetry.TLS
	logger   *slog.Logger
	registry *prometheus.Registry
	ready    atomic.Bool
}

func (c hostConfig) page(logger *slog.Logger) *hostPage {
	address := c.metricsAddress
	if strings.HasPrefix(address, ":") { // a machine without a cluster has no network of its own to trust
		address = "127.0.0.1" + address
	}
	return &hostPage{address: address, tls: c.metricsTLS, logger: logger, registry: metrics.NewRegistry(c.version)}
}

// serveWith serves the page, if there is one, for as long as serve runs.
func (p *hostPage) serveWith(ctx context.Context, serve func(context.Context) error) error {
	if p.address == "" {
		return serve(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer cancel()
		return serve(ctx)
	})
	group.Go(func() error {
		listed := &pages{address: p.address, tls: p.tls, registry: p.registry, logger: p.logger, probe: p.probe}
		return listed.page().Run(ctx)
	})
	return group.Wait()
}

func (p *hostPage) probe(context.Context) error {
	if !p.ready.Load() {
		return errors.New("the host takes over the volumes and pods of the one before")
	}
	return nil
}
