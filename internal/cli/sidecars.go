package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/csiclient"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/register"
	"github.com/holdfast-csi/holdfast/internal/kube/upstreamflags"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// meetingPause is how often a driver's socket is tried at the start.
const meetingPause = time.Second

const sidecarsHelp = `Serve Kubernetes for a CSI driver that somebody else wrote.

One process in place of external-provisioner, external-attacher,
external-resizer, csi-snapshotter, external-health-monitor,
node-driver-registrar and livenessprobe. It waits for the driver's socket for as
long as it takes, and plays the roles that the driver is able to serve.

Flags of those sidecars are understood: where Holdfast has the same setting they
set it, and else they are ignored with a warning.`

// sidecarsFlags are the flags of the command sidecars.
type sidecarsFlags struct {
	kube                              kubeFlags
	address                           string
	nodeDeployment                    bool
	registrationDir, registrationPath string
	metricsAddress                    string
	logFormat, logLevel               string
	version                           string

	logger *slog.Logger
	points *failpoint.Set
}

func newSidecarsCommand(version string) *cobra.Command {
	f := sidecarsFlags{version: version}
	command := &cobra.Command{
		Use:   "sidecars --csi-address=SOCKET",
		Short: "Run the Kubernetes controllers beside any CSI driver",
		Long:  sidecarsHelp,
		Args:  arguments(cobra.NoArgs),
	}
	flags := command.Flags()
	flags.StringVar(&f.address, "csi-address", "/run/csi/socket", "the driver's `SOCKET`")
	flags.BoolVar(&f.nodeDeployment, "node-deployment", false, "act for the volumes of this node only; each node has its own process then")
	flags.StringVar(&f.registrationDir, "registration-dir", "", "`DIRECTORY` in which to register the driver with the kubelet (default: do not)")
	flags.StringVar(&f.registrationPath, "kubelet-registration-path", "", "`PATH` of the driver's socket as the kubelet sees it (default: that of --csi-address)")
	flags.StringVar(&f.metricsAddress, "metrics-address", "", "`[HOST]:PORT` with /metrics, /healthz and /readyz (default: none)")
	flags.StringVar(&f.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	f.kube.bind(flags)
	warnings := upstreamflags.Bind(flags)
	command.RunE = func(command *cobra.Command, _ []string) error { return f.run(command, warnings) }
	return command
}

func (f *sidecarsFlags) run(command *cobra.Command, upstream *upstreamflags.Set) (err error) {
	if f.logger, err = telemetry.NewLogger(command.ErrOrStderr(), f.logFormat, f.logLevel); err != nil {
		return &UsageError{Err: err}
	}
	if f.points, err = failpoint.FromEnvironment(); err != nil {
		return &UsageError{Err: err}
	}
	if f.nodeDeployment && f.kube.node == "" {
		return usageErrorf("--node-deployment needs --node-name or $NODE_NAME: the name of this process's Node object")
	}
	for _, warning := range upstream.Warnings() {
		f.logger.Warn(warning)
	}
	return f.serve(command.Context())
}

// serve meets the driver once for its name, which metrics and registration
// need, and runs everything.
func (f *sidecarsFlags) serve(ctx context.Context) error {
	registry := telemetry.NewRegistry()
	var controllers *kube.Controllers
	name, err := f.driverName(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	client, err := csiclient.Dial(f.address, csiclient.Options{
		Driver: name, Logger: f.logger, Timeout: f.kube.timeout, Observe: kube.CallMetrics(registry, name),
		Disconnected: func() {
			if controllers != nil {
				controllers.Reconnect()
			}
		},
	})
	if err != nil {
		return &UsageError{Err: fmt.Errorf("--csi-address: %w", err)}
	}
	defer client.Close() //nolint:errcheck // nothing is left to be said to it
	parts := kubeParts{version: f.version, client: client, logger: f.logger, registerer: registry, points: f.points}
	if f.nodeDeployment {
		parts.node = f.kube.node
	}
	if controllers, err = f.kube.controllers(parts); err != nil {
		return err
	}
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { return controllers.Run(serving) })
	if f.registrationDir != "" {
		group.Go(func() error { return f.register(serving, name) })
	}
	if f.metricsAddress != "" {
		group.Go(func() error { return f.page(registry, client, controllers).Run(serving) })
	}
	return group.Wait()
}

// driverName waits for the driver and asks its name.
func (f *sidecarsFlags) driverName(ctx context.Context) (string, error) {
	client, err := csiclient.Dial(f.address, csiclient.Options{Logger: f.logger})
	if err != nil {
		return "", &UsageError{Err: fmt.Errorf("--csi-address: %w", err)}
	}
	defer client.Close() //nolint:errcheck // nothing is left to be said to it
	for told := false; ; told = true {
		info, err := client.PluginInfo(ctx)
		if err == nil && info.GetName() != "" {
			return info.GetName(), nil
		}
		if !told {
			f.logger.InfoContext(ctx, "waiting for the driver", "socket", f.address, "error", err)
		}
		timer := time.NewTimer(meetingPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", nil
		}
	}
}

func (f *sidecarsFlags) register(ctx context.Context, driver string) error {
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
	return registration.Run(ctx)
}

func (f *sidecarsFlags) page(registry *prometheus.Registry, client *csiclient.Client, controllers *kube.Controllers) telemetry.Page {
	return telemetry.Page{
		Address: f.metricsAddress, Gatherer: registry, Logger: f.logger,
		Ready: func(ctx context.Context) error {
			if err := client.Probe(ctx); err != nil {
				return err
			}
			return controllers.Ready(ctx)
		},
	}
}
