package cli

import (
	"cmp"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/csi/server"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/kube/upstreamflags"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

// defaultEndpoint is where deployments of CSI drivers mount the directory of
// the socket; CSI_ENDPOINT is the specification's way to say otherwise.
const defaultEndpoint = "unix:///csi/csi.sock"

// keepTaint is the AWS EBS CSI driver's variable for a node that keeps its startup taint.
const keepTaint = "DISABLE_TAINT_WATCHER"

const driverHelp = `Serve the Container Storage Interface on a unix socket.

The mode selects the services next to Identity:
  all         Controller, GroupController and Node (the default)
  controller  Controller and GroupController
  node        Node

With --kubernetes this process also runs the controllers that replace the
sidecars: on each node for its own volumes if the backend's volumes stay on their
node (local), otherwise in one of several processes, selected by a lease.

It ends on SIGTERM: calls in flight have 10 s to finish.

Traces go to OTEL_EXPORTER_OTLP_ENDPOINT, if it is set.`

// driverFlags are the flags of the command driver.
type driverFlags struct {
	driverConfig
	logFormat, logLevel string
	onKubernetes        bool
	kube                kubeFlags
}

func newDriverCommand(version string) *cobra.Command {
	f := driverFlags{driverConfig: driverConfig{version: version}}
	command := &cobra.Command{
		Use:       "driver [all|controller|node]",
		Short:     "Serve CSI on a unix socket",
		Long:      driverHelp,
		Version:   version,
		Args:      arguments(cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: []string{string(server.All), string(server.Controller), string(server.Node)},
	}
	flags := command.Flags()
	flags.StringVar(&f.endpoint, "endpoint", cmp.Or(os.Getenv("CSI_ENDPOINT"), defaultEndpoint),
		"the CSI socket (default also from $CSI_ENDPOINT)")
	flags.StringVar(&f.backend, "backend", "", "what holds the data: "+strings.Join(backendNames(), ", "))
	flags.StringVar(&f.name, "driver-name", "", "CSI plugin `NAME` (default: the backend's own)")
	flags.StringVar(&f.nodeID, "node-id", "", "`ID` of this machine (default: the host name; for ebs the instance ID, by --metadata-sources)")
	flags.StringVar(&f.kubeletDir, "kubelet-dir", defaultKubeletDir,
		"`DIRECTORY` below which volumes are staged and published")
	flags.StringVar(&f.windowsHost, "windows-host", windowsHostAuto,
		"how a Windows node reaches its disks: "+strings.Join(windowsHosts(), ", "))
	flags.StringVar(&f.registrationDir, "registration-dir", "",
		"`DIRECTORY` in which to register with a kubelet (default: do not)")
	flags.StringVar(&f.registrationPath, "registration-path", "",
		"`PATH` of the CSI socket as the kubelet sees it (default: that of --endpoint)")
	bindMetrics(flags, &f.metricsAddress, &f.metricsTLS)
	bindVolumeMetrics(flags, &f.metricsVolumes)
	bindProfiles(flags, &f.pprofAddress)
	flags.StringVar(&f.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVar(&f.removeTaint, "remove-startup-taint", false,
		"take the taint DRIVER/agent-not-ready off this node when it can attach volumes")
	flags.BoolVar(&f.onKubernetes, "kubernetes", false,
		"run the Kubernetes controllers in this process, in place of the sidecars")
	f.local.bind(flags, defaultPool)
	f.ebs.bind(flags)
	f.kube.bind(flags)
	warnings := upstreamflags.BindEBSDriver(flags)
	command.RunE = func(command *cobra.Command, mode []string) error { return f.run(command, mode, warnings) }
	command.InitDefaultVersionFlag()
	return command
}

// bindMetrics declares the flags of the page of metrics.
func bindMetrics(flags *pflag.FlagSet, address *string, tls *telemetry.TLS) {
	flags.StringVar(address, "metrics-address", "",
		"`[HOST]:PORT` with /metrics, /healthz and /readyz (default: none)")
	flags.StringVar(&tls.CertificateFile, "metrics-cert-file", "",
		"`FILE` with a certificate, PEM, to serve --metrics-address over HTTPS; it is read again when it changes")
	flags.StringVar(&tls.KeyFile, "metrics-key-file", "", "`FILE` with the key of --metrics-cert-file")
}

// checkMetrics checks the flags of the page of metrics.
func checkMetrics(address string, tls telemetry.TLS) error {
	switch {
	case (tls.CertificateFile == "") != (tls.KeyFile == ""):
		return usageErrorf("--metrics-cert-file and --metrics-key-file go together")
	case tls.CertificateFile != "" && address == "":
		return usageErrorf("--metrics-cert-file needs --metrics-address")
	}
	return nil
}

func (f driverFlags) run(command *cobra.Command, mode []string, upstream *upstreamflags.Set) (err error) {
	if f.backend == "" {
		return usageErrorf("--backend is not given; this binary has %s", strings.Join(backendNames(), ", "))
	}
	if len(mode) > 0 {
		f.mode = server.Mode(mode[0])
	}
	if f.logger, err = telemetry.NewLogger(command.ErrOrStderr(), f.logFormat, f.logLevel); err != nil {
		return &UsageError{Err: err}
	}
	for _, warning := range slices.Concat(upstream.Warnings(), upstreamflags.EBSDriverWarnings(os.Getenv)) {
		f.logger.Warn(warning)
	}
	f.removeTaint = f.removeTaint && os.Getenv(keepTaint) == ""
	if f.onKubernetes {
		if f.mode == server.Node {
			return usageErrorf("--kubernetes: mode node runs no controllers; give it to the mode controller or all")
		}
		f.kubernetes = &f.kube
	}
	err = errors.Join(f.checkStartupTaint(), checkMetrics(f.metricsAddress, f.metricsTLS), checkProfiles(f.pprofAddress),
		f.checkWindowsHost(command.Flags()))
	if err != nil {
		return err
	}
	f.kubeconfig, f.nodeName = f.kube.kubeconfig, f.kube.node
	if f.points, err = failpoint.FromEnvironment(); err != nil {
		return &UsageError{Err: err}
	}
	limitHeap()
	f.rest = func() { releaseMemory(f.logger) }
	process, err := newDriver(command.Context(), f.driverConfig)
	if err != nil {
		return err
	}
	return process.Run(command.Context())
}
