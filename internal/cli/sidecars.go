package cli

import (
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/live"
	"github.com/holdfast-csi/holdfast/internal/kube/upstreamflags"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// handshakePause is the interval of dialling a driver's socket at the start.
const handshakePause = time.Second

const sidecarsName = "sidecars"

const sidecarsHelp = `Serve Kubernetes for a CSI driver of another vendor.

One process in place of external-provisioner, external-attacher,
external-resizer, csi-snapshotter, external-health-monitor,
node-driver-registrar and livenessprobe. It waits for the driver's socket without
a time limit, and runs the controllers for the driver's capabilities.

With --controllers=none it only registers the driver with the kubelet, for the
pods of a driver whose controllers run elsewhere. That needs no API server.

It accepts the flags of those sidecars: a flag sets the same setting of Holdfast,
or is ignored with a warning.`

// sidecarsFlags are the flags of the command sidecars.
type sidecarsFlags struct {
	kube                              kubeFlags
	address                           string
	nodeDeployment                    bool
	registrationDir, registrationPath string
	metricsAddress, driverAddress     string
	pprofAddress                      string
	probeTimeout                      time.Duration
	logFormat, logLevel               string
	version                           string

	logger *slog.Logger
	points *failpoint.Set
}

func newSidecarsCommand(version string) *cobra.Command {
	f := sidecarsFlags{version: version}
	command := &cobra.Command{
		Use:   sidecarsName + " --csi-address=SOCKET",
		Short: "Run the Kubernetes controllers next to any CSI driver",
		Long:  sidecarsHelp,
		Args:  arguments(cobra.NoArgs),
	}
	flags := command.Flags()
	flags.StringVar(&f.address, "csi-address", "/run/csi/socket", "the driver's `SOCKET`")
	flags.BoolVar(&f.nodeDeployment, "node-deployment", false, "act for this node's volumes only; one process per node")
	flags.StringVar(&f.registrationDir, "registration-dir", "", "the kubelet's registration `DIRECTORY` (default: none)")
	flags.StringVar(&f.registrationPath, "kubelet-registration-path", "",
		"`PATH` of the driver's socket as the kubelet sees it (default: that of --csi-address)")
	flags.StringVar(&f.metricsAddress, "metrics-address", "", "`[HOST]:PORT` of metrics and health (default: none)")
	flags.StringVar(&f.driverAddress, "driver-health-address", "", "`[HOST]:PORT` of the driver's health (default: none)")
	bindProfiles(flags, &f.pprofAddress)
	flags.DurationVar(&f.probeTimeout, "probe-timeout", live.DefaultProbeTimeout, "time limit of the driver's Probe")
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
	if f.registersOnly() && f.registrationDir == "" {
		return usageErrorf("--controllers=%s needs --registration-dir: without both, the process would do nothing", noControllers)
	}
	if err := checkProfiles(f.pprofAddress); err != nil {
		return err
	}
	for _, warning := range upstream.Warnings() {
		f.logger.Warn(warning)
	}
	limitHeap()
	process, err := newSidecarsProcess(f)
	if err != nil {
		return err
	}
	return process.Run(command.Context())
}

// noControllers is the value of --controllers for the pods of a driver's node
// half: its controllers run elsewhere, and it needs the kubelet only.
const noControllers = "none"

func (f *sidecarsFlags) registersOnly() bool {
	return slices.Equal(f.kube.roles, []string{noControllers})
}

// node is the node to act for, "" for all.
func (f *sidecarsFlags) node() string {
	if f.nodeDeployment {
		return f.kube.node
	}
	return ""
}

// asSidecars lets the command line of a sidecar stand as it is in its manifest.
func asSidecars(root *cobra.Command, arguments []string) []string {
	command, _, err := root.Find(arguments)
	if err != nil || command.Name() != sidecarsName {
		return arguments
	}
	return upstreamflags.Doubled(command.Flags(), arguments)
}
