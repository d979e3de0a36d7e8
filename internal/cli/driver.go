package cli

import (
	"cmp"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/driver"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// defaultEndpoint is where deployments of CSI drivers mount the directory of
// the socket; CSI_ENDPOINT is the specification's way to say otherwise.
const defaultEndpoint = "unix:///csi/csi.sock"

const driverHelp = `Serve the Container Storage Interface on a unix socket.

The mode says which services are answered beside Identity:
  all         Controller, GroupController and Node (the default)
  controller  Controller and GroupController
  node        Node

It ends on SIGTERM: calls in flight have 10 s to finish.

Traces go to where OTEL_EXPORTER_OTLP_ENDPOINT says, if it is set.`

func newDriverCommand(version string) *cobra.Command {
	c := driverConfig{version: version}
	var logFormat, logLevel string
	command := &cobra.Command{
		Use:       "driver [all|controller|node]",
		Short:     "Serve CSI on a unix socket",
		Long:      driverHelp,
		Args:      arguments(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{string(driver.All), string(driver.Controller), string(driver.Node)},
		RunE: func(command *cobra.Command, given []string) error {
			if len(given) > 0 {
				c.mode = driver.Mode(given[0])
			}
			var err error
			if c.logger, err = telemetry.NewLogger(command.ErrOrStderr(), logFormat, logLevel); err != nil {
				return &UsageError{Err: err}
			}
			return runDriver(command, c)
		},
	}
	flags := command.Flags()
	flags.StringVar(&c.endpoint, "endpoint", cmp.Or(os.Getenv("CSI_ENDPOINT"), defaultEndpoint), "the CSI socket (default also from $CSI_ENDPOINT)")
	flags.StringVar(&c.backend, "backend", "", "what holds the data: "+strings.Join(backendNames(), ", "))
	flags.StringVar(&c.name, "driver-name", "", "CSI plugin `NAME` (default: the backend's own)")
	flags.StringVar(&c.nodeID, "node-id", "", "`ID` of this machine (default: the host name)")
	flags.StringVar(&c.kubeletDir, "kubelet-dir", defaultKubeletDir, "`DIRECTORY` below which volumes are staged and published")
	flags.StringVar(&c.registrationDir, "registration-dir", "", "`DIRECTORY` in which to register with a kubelet (default: do not)")
	flags.StringVar(&c.registrationPath, "registration-path", "", "`PATH` of the CSI socket as the kubelet sees it (default: that of --endpoint)")
	flags.StringVar(&c.metricsAddress, "metrics-address", "", "`[HOST]:PORT` with /metrics, /healthz and /readyz (default: none)")
	flags.StringVar(&logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	c.local.bind(flags, defaultPool)
	return command
}

func runDriver(command *cobra.Command, c driverConfig) (err error) {
	if c.backend == "" {
		return usageErrorf("--backend is not given; this binary has %s", strings.Join(backendNames(), ", "))
	}
	if c.points, err = failpoint.FromEnvironment(); err != nil {
		return &UsageError{Err: err}
	}
	process, err := newDriver(command.Context(), c)
	if err != nil {
		return err
	}
	return process.Run(command.Context())
}
