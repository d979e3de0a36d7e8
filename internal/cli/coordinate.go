package cli

import (
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

const coordinateHelp = `Coordinate the nodes of a driver whose controllers run on each node.

The holder of a lease labels claims, volumes and snapshot contents with their
node, and selects the nodes of claims with immediate binding. It reports
volumes that were being made on nodes that are gone. It calls no driver.
The nodes' processes run with --node-objects-only and --leader-election=false:
their account then needs no right to objects of other nodes.`

// coordinateFlags are the flags of the command coordinate.
type coordinateFlags struct {
	kube                         kubeFlags
	driver                       string
	metricsAddress, pprofAddress string
	metricsTLS                   telemetry.TLS
	logFormat, logLevel          string
}

func newCoordinateCommand(version string) *cobra.Command {
	f := coordinateFlags{kube: kubeFlags{elect: true}}
	command := &cobra.Command{
		Use: "coordinate --driver-name=NAME", Short: "Coordinate the nodes of a driver", Long: coordinateHelp,
		Args: arguments(cobra.NoArgs),
	}
	flags := command.Flags()
	flags.StringVar(&f.driver, "driver-name", "", "CSI plugin `NAME`")
	f.kube.bindProcess(flags)
	f.kube.tuning.BindCoordination(flags)
	bindMetrics(flags, &f.metricsAddress, &f.metricsTLS)
	bindProfiles(flags, &f.pprofAddress)
	flags.StringVar(&f.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	command.RunE = func(command *cobra.Command, _ []string) error { return f.run(command, version) }
	return command
}

func (f *coordinateFlags) run(command *cobra.Command, version string) error {
	if f.driver == "" {
		return usageErrorf("--driver-name is not given")
	}
	if err := checkMetrics(f.metricsAddress, f.metricsTLS); err != nil {
		return err
	}
	if err := checkProfiles(f.pprofAddress); err != nil {
		return err
	}
	if err := f.kube.checkLease(); err != nil {
		return err
	}
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), f.logFormat, f.logLevel)
	if err != nil {
		return &UsageError{Err: err}
	}
	points, err := failpoint.FromEnvironment()
	if err != nil {
		return &UsageError{Err: err}
	}
	klog.SetSlogLogger(logger.With("component", "client-go"))
	limitHeap()
	p := &pages{address: f.metricsAddress, tls: f.metricsTLS, registry: metrics.NewRegistry(version), logger: logger}
	coordinator, err := f.coordinator(version, logger, p, points)
	if err != nil {
		return err
	}
	group, serving := errgroup.WithContext(command.Context())
	if f.metricsAddress != "" {
		group.Go(func() error { return p.page().Run(serving) })
	}
	if f.pprofAddress != "" {
		group.Go(func() error { return telemetry.Profiles{Address: f.pprofAddress, Logger: logger}.Run(serving) })
	}
	group.Go(func() error { return coordinator.Run(serving) })
	return group.Wait()
}

// coordinator connects to the API server, and adds the state of the coordinator to the
// pages.
func (f *coordinateFlags) coordinator(
	version string, logger *slog.Logger, p *pages, points *failpoint.Set,
) (*kube.Coordinator, error) {
	namespace, err := f.kube.ownNamespace()
	if err != nil {
		return nil, err
	}
	if f.kube.lease.Identity, err = f.kube.identity(); err != nil {
		return nil, err
	}
	clients, err := cluster.Connect(f.kube.kubeconfig, "holdfast/"+version, cluster.Measured(p.registry))
	if err != nil {
		return nil, err
	}
	f.kube.lease.State = &lease.State{}
	coordinator := kube.NewCoordinator(kube.CoordinatorOptions{
		Clients: clients, Driver: f.driver, Namespace: namespace, Intents: f.kube.intents, Lease: f.kube.lease,
		Immediate: f.kube.tuning.ImmediateOnNodes, CrossNamespace: f.kube.tuning.CrossNamespace,
		Logger: logger, Registerer: p.registry, Failpoints: points,
	})
	p.controlled(coordinator, cluster.DefaultTimeout)
	p.electing(f.kube.lease.State)
	return coordinator, nil
}
