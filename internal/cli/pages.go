package cli

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/live"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// A queue in which nothing ends for so long is stuck: each call of the driver
// has its time, and an item makes a few calls at most.
const (
	stuckCalls = 10
	stuckLeast = 10 * time.Minute
)

// pages is the address of a process with its metrics and its health.
type pages struct {
	address  string
	tls      telemetry.TLS
	registry *prometheus.Registry
	logger   *slog.Logger
	probe    func(context.Context) error // asks the driver whether it is ready
	// probeTimeout is how long that may take; 0 means the default.
	probeTimeout time.Duration
	facts        []live.Fact
	vitals       []live.Vital
	lease        func() error // lease.State.Check; nil when the process asks for none
}

// controlled adds the controllers' metrics and health; timeout bounds one call of the
// driver.
func (p *pages) controlled(controllers interface {
	Describe() (words string, err error)
	Stuck() (queue string, since time.Duration)
}, timeout time.Duration,
) {
	p.facts = append(p.facts, live.Fact{Name: "controllers", Describe: controllers.Describe})
	p.vitals = append(p.vitals, live.Moving(controllers, max(stuckCalls*timeout, stuckLeast)))
}

// electing adds the state of the lease.
func (p *pages) electing(state *lease.State) {
	p.lease = state.Check
	p.facts = append(p.facts, live.Lease(state))
	p.vitals = append(p.vitals, live.Vital{Name: "lease", Test: state.Check})
}

// page is the set of pages that telemetry serves.
func (p *pages) page() telemetry.Page {
	health := live.New(live.Options{Probe: p.probe, ProbeTimeout: p.probeTimeout, Facts: p.facts, Vitals: p.vitals})
	return telemetry.Page{Address: p.address, TLS: p.tls, Gatherer: p.registry, Logger: p.logger,
		Handlers: health.Handlers(p.lease)}
}

// bindProfiles declares the flag of the address of profiles.
func bindProfiles(flags *pflag.FlagSet, address *string) {
	flags.StringVar(address, "pprof-address", "", "loopback `ADDRESS:PORT` with /debug/pprof (default: none)")
}

// checkProfiles checks the address of profiles; "" is none.
func checkProfiles(address string) error {
	if address == "" {
		return nil
	}
	if err := (telemetry.Profiles{Address: address}).Check(); err != nil {
		return usageErrorf("--pprof-address: %w", err)
	}
	return nil
}

// driverPage is the address of livenessprobe, for the driver's own container:
// its /healthz is about the driver, and not about this process.
func (p *pages) driverPage(address string) telemetry.Page {
	health := live.New(live.Options{Probe: p.probe, ProbeTimeout: p.probeTimeout})
	return telemetry.Page{Address: address, Gatherer: p.registry, Logger: p.logger, Handlers: map[string]http.Handler{
		live.PathLive: health.DriverHandler(),
	}}
}
