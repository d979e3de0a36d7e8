package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

const hostHelp = `Serve this machine as the kubelet and the controllers of a cluster do for CSI:
claims, snapshots and pods from Kubernetes manifests, with any CSI driver.
'holdfast apply', 'get', 'describe' and 'delete' are its clients.

Drivers are found by their registration sockets in ROOT/plugins_registry, as a
kubelet finds them, or started from unit files in ROOT/drivers.d. The driver
local.holdfast.dev is part of this program.

When the host ends, volumes stay mounted and pods keep running; the next host
takes them over. It ends on SIGTERM: calls in flight have 10 s to finish.`

// hostConfig are the flags of the command.
type hostConfig struct {
	root                string
	group, readGroup    string
	secretsKey          string
	logFormat, logLevel string
	version             string
	local               localConfig
	inline              inlineConfig
	volumePlugin        string
	metricsAddress      string
	metricsTLS          telemetry.TLS
	status              statusPage
	pools               *knownPools
	metricsVolumes      uint
}

func newHostCommand(version string) *cobra.Command {
	c := hostConfig{version: version, pools: new(knownPools)}
	command := &cobra.Command{
		Use:   "host",
		Short: "Serve volumes and pods on this machine, as a daemon",
		Long:  hostHelp,
		Args:  unknownCommand,
		RunE:  func(command *cobra.Command, _ []string) error { return c.run(command) },
	}
	command.PersistentFlags().StringVar(&c.root, "root", rootDefault(), "`DIRECTORY` of claims, volumes and sockets")
	flags := command.Flags()
	flags.StringVar(&c.group, "socket-group", "", "`GROUP` whose members may do everything, next to root")
	flags.StringVar(&c.readGroup, "socket-read-group", "", "`GROUP` whose members may read")
	flags.StringVar(&c.secretsKey, "secrets-key", "", "`FILE` with the 32-byte Secret key (default: ROOT/secrets.key)")
	flags.StringVar(&c.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	flags.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	c.inline.bind(flags)
	flags.StringVar(&c.volumePlugin, "volume-plugin", "", "`SOCKET` for Docker and Podman, such as /run/docker/plugins/holdfast.sock: claims are their volumes (default: none)")
	bindHostMetrics(flags, &c.metricsAddress, &c.metricsTLS)
	c.status.bind(flags, "status-", "", "`HOST:PORT` to serve the status page at, such as 127.0.0.1:8780 (default: only at the host's socket)")
	bindVolumeMetrics(flags, &c.metricsVolumes)
	c.local.bind(flags, "")
	flags.Lookup("pool").DefValue = "ROOT/pool"
	command.AddCommand(newHostCheckCommand(&c), newHostRepairCommand(&c), newHostBackupsCommand(&c),
		newHostRestoreCommand(&c), newHostInitCommand(&c), newHostDrainCommand(&c))
	return command
}

func (c hostConfig) run(command *cobra.Command) (err error) {
	if runtime.GOOS == "linux" && os.Geteuid() != 0 {
		return errors.New("this command mounts filesystems and needs root: run it with sudo")
	}
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), c.logFormat, c.logLevel)
	if err != nil {
		return &UsageError{Err: err}
	}
	groups, err := c.groups()
	if err != nil {
		return err
	}
	if err := checkMetrics(c.metricsAddress, c.metricsTLS); err != nil {
		return err
	}
	limitHeap()
	page := c.page(logger)
	traces, err := telemetry.NewTracing(command.Context(), hostService, c.version)
	if err != nil {
		return err
	}
	defer closeTraces(command.Context(), traces, logger)
	opened, err := c.open(command.Context(), logger, page.registry, traces.Tracer())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return page.serveWith(command.Context(), func(ctx context.Context) error { return c.serve(ctx, opened, logger, groups, page) })
}

// serve serves the host until the context ends.
func (c hostConfig) serve(ctx context.Context, opened *host.Host, logger *slog.Logger, groups [2]*uint32, page *hostPage) error {
	pages, err := c.statusPages(api.Dial(opened.Socket()), logger)
	if err != nil {
		return err
	}
	defer pages.close()
	client := api.Dial(opened.Socket())
	defer client.Close()
	guard, err := newWatchdog(client, logger)
	if err != nil {
		return err
	}
	plugin, err := inheritedPlugin(c.volumePlugin)
	if err != nil {
		return err
	}
	servers := append(pages.servers, func(ctx context.Context) error {
		guard.run(ctx)
		<-ctx.Done()
		return nil
	})
	return opened.Serve(ctx, host.DaemonOptions{
		Version: c.version, Group: groups[0], ReadGroup: groups[1], VolumePlugin: c.volumePlugin, PluginListener: plugin,
		Status: pages.socket, Servers: servers, Pools: c.pools.list,
		Ready: func() {
			page.ready.Store(true)
			logger.Info("the host is ready", "root", c.root, "socket", opened.Socket())
			// Without systemd there is no socket to notify, which is not an error.
			if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
				logger.Warn("cannot notify systemd that the host is ready", "error", err)
			}
		},
	})
}

func (c hostConfig) open(
	ctx context.Context, logger *slog.Logger, registry *prometheus.Registry, tracer *tracing.Tracer,
) (*host.Host, error) {
	points, err := failpoint.FromEnvironment()
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	d := driverConfig{backend: backendLocal, local: c.local, version: c.version, logger: logger, points: points,
		registry: registry, metricsVolumes: c.metricsVolumes, pools: c.pools}
	options := host.Options{
		Root: c.root, Logger: logger, Failpoints: points, SecretsKey: c.secretsKey, Registerer: registry, Tracer: tracer,
		MetricsVolumes: int(c.metricsVolumes),
		Rest:           func() { releaseMemory(logger) },
		Builtins:       []host.Builtin{d.builtin()},
	}
	if c.local.pool != "" {
		options.Private = []string{c.local.pool}
	}
	if err := c.inline.set(&options); err != nil {
		return nil, err
	}
	return host.Open(ctx, options)
}

// groups are the ids of the two groups, nil for one that is not given.
func (c hostConfig) groups() (ids [2]*uint32, err error) {
	for i, given := range []struct{ flag, name string }{{"--socket-group", c.group}, {"--socket-read-group", c.readGroup}} {
		if given.name == "" {
			continue
		}
		text := given.name
		if found, err := user.LookupGroup(given.name); err == nil {
			text = found.Gid
		}
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return ids, usageErrorf("%s: this machine has no group %q", given.flag, given.name)
		}
		narrow := uint32(id)
		ids[i] = &narrow
	}
	return ids, nil
}

// absolute returns the absolute path of the root directory, which the store requires.
func (c *hostConfig) absolute() (string, error) { return filepath.Abs(c.root) }
