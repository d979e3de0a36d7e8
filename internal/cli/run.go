package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

const runHelp = `Make the volumes of Kubernetes manifests, run their pods as processes of this
machine with the volumes at their mount paths, and unmount the volumes. Claims and their data stay until --delete.

A container's image is not used: its command must exist on this machine. The
exit code is that of the first container that failed. Fields without a meaning
on one machine are reported; fields that cannot be honoured are errors.

If a host serves the root ('holdfast host'), it makes and mounts the volumes, and
'holdfast get pods' shows the pods for as long as they run.

Drivers are found by their registration sockets in ROOT/plugins_registry, as a
kubelet finds them. The driver local.holdfast.dev is part of this program.`

// runConfig are the flags of the command.
type runConfig struct {
	files    []string
	root     string
	delete   bool
	logLevel string
	version  string
	local    localConfig
	inline   inlineConfig
}

func newRunCommand(version string) *cobra.Command {
	c := runConfig{version: version}
	command := &cobra.Command{
		Use:   "run -f FILE…",
		Short: "Run pods with their volumes on this machine",
		Long:  runHelp,
		Args:  arguments(cobra.NoArgs),
		RunE:  func(command *cobra.Command, _ []string) error { return c.run(command) },
	}
	flags := command.Flags()
	flags.StringArrayVarP(&c.files, "filename", "f", nil, "manifest `FILE`, - for standard input; may be repeated")
	flags.StringVar(&c.root, "root", rootDefault(), "`DIRECTORY` of claims, volumes and sockets")
	flags.BoolVar(&c.delete, "delete", false, "remove the claims of the manifest with their volumes, and run nothing")
	flags.StringVar(&c.logLevel, "log-level", "error", "debug, info, warn or error")
	c.inline.bind(flags)
	c.local.bind(flags, "")
	flags.Lookup("pool").DefValue = "ROOT/pool"
	return command
}

// newWorkloadCommand is the command of a container's first process (workload.Run).
func newWorkloadCommand() *cobra.Command {
	return &cobra.Command{
		Use: workload.ChildCommand, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return ExitError{Code: workload.Child()} },
	}
}

func (c runConfig) run(command *cobra.Command) (err error) {
	files, objects, err := c.read(command.InOrStdin())
	if err != nil {
		return err
	}
	if runtime.GOOS == "linux" && os.Geteuid() != 0 {
		return errors.New("this command mounts filesystems and needs root: run it with sudo")
	}
	growHeap()
	// A closed terminal and Ctrl-\ end a run as Ctrl-C does.
	ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	progress := newDisplay(command.ErrOrStderr())
	defer progress.close()
	client := api.DialRoot(c.root)
	defer client.Close()
	if _, err := client.Version(ctx); err == nil {
		root, err := filepath.Abs(c.root)
		if err != nil {
			return err
		}
		return c.execute(ctx, &host.Attached{Client: client, Root: root,
			AwaitGone: func(ctx context.Context, kind store.Kind, namespace, name string) error {
				return awaitGone(ctx, client, named{kind: kind, namespace: namespace, name: name})
			}}, files, objects, progress, command)
	} // for any reason: if another process has it, the store reports that
	traces, err := telemetry.NewTracing(ctx, hostService, c.version)
	if err != nil {
		return err
	}
	defer closeTraces(ctx, traces, slog.New(slog.DiscardHandler))
	opened, err := c.open(ctx, progress, traces.Tracer())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	return opened.Run(ctx, func(ctx context.Context, client *host.Attached) error {
		return c.execute(ctx, client, files, objects, progress, command)
	})
}

// read decodes the manifests, before the run changes anything.
func (c runConfig) read(stdin io.Reader) ([]manifest.File, *manifest.Objects, error) {
	if len(c.files) == 0 {
		return nil, nil, usageErrorf("-f FILE is not given")
	}
	files := make([]manifest.File, 0, len(c.files))
	for _, name := range c.files {
		data, err := readFile(name, stdin)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, manifest.File{Name: name, Data: data})
	}
	objects, err := manifest.Decode(files)
	if err != nil {
		return nil, nil, err
	}
	return files, objects, objects.ForRun()
}

// maximumManifest bounds one file: a typing error may name a device.
const maximumManifest = 16 << 20

func readFile(name string, stdin io.Reader) ([]byte, error) {
	source := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("read the manifest: %w", err)
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	data, err := io.ReadAll(io.LimitReader(source, maximumManifest+1))
	if err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", name, err)
	}
	if len(data) > maximumManifest {
		return nil, fmt.Errorf("the manifest %s has more than %d bytes", name, maximumManifest)
	}
	return data, nil
}

func (c runConfig) open(ctx context.Context, progress *display, tracer *tracing.Tracer) (*host.Host, error) {
	points, err := failpoint.FromEnvironment()
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	logger, err := telemetry.NewLogger(progress, telemetry.FormatText, c.logLevel)
	if err != nil {
		return nil, &UsageError{Err: err}
	}
	d := driverConfig{backend: backendLocal, local: c.local, version: c.version, logger: logger, points: points}
	limit := sync.OnceFunc(limitHeap)
	options := host.Options{
		Root: c.root, Observe: progress.observe, Logger: logger, Failpoints: points, Tracer: tracer,
		Builtins: []host.Builtin{d.builtin()},
		Rest: func() {
			limit()
			releaseMemory(logger)
		},
	}
	if c.local.pool != "" {
		options.Private = []string{c.local.pool}
	}
	if err := c.inline.set(&options); err != nil {
		return nil, err
	}
	return host.Open(ctx, options)
}

// serveFor serves the local driver for a host, over sockets like any other.
func (c driverConfig) serveFor(ctx context.Context, sockets host.Sockets) error {
	c.kubeletDir = sockets.Root
	c.endpoint = "unix://" + sockets.CSI
	c.registrationDir = filepath.Dir(sockets.Registration)
	c.registrationCheck = time.Minute // an idle host must not wake
	if c.local.pool == "" {
		c.local.pool = filepath.Join(sockets.Root, "pool")
	}
	process, err := newDriver(ctx, c)
	if err != nil {
		return err
	}
	return process.Run(ctx)
}

// execute runs the pods of the files, or deletes the claims, as a client of a host.
func (c runConfig) execute(ctx context.Context, client *host.Attached, files []manifest.File, objects *manifest.Objects, progress *display, command *cobra.Command) error {
	if c.delete {
		deleted, err := client.Delete(ctx, objects)
		return reportDeleted(deleted, err, command.OutOrStdout())
	}
	for _, unused := range objects.Unused {
		progress.say("not used on one machine: " + unused)
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)
	code, err := client.Run(ctx, files, objects, host.Output{
		Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr(), Signals: signals, Starting: progress.keep,
		Warn: func(text string) { progress.say("Warning: " + printable(text)) },
	})
	if ctx.Err() != nil {
		if text := c.whatStays(ctx, client.Client, objects); text != "" {
			progress.say(text)
		}
	}
	if err == nil && code != 0 {
		return ExitError{Code: code}
	}
	return err
}

func reportDeleted(deleted []host.Deleted, err error, out io.Writer) error {
	for _, object := range deleted {
		text := "deleted"
		switch {
		case object.Absent:
			text = "not found"
		case object.Retained != "":
			text = fmt.Sprintf("deleted; its volume %s stays (reclaimPolicy: Retain)", object.Retained)
		}
		if _, err := fmt.Fprintf(out, "%s %q %s\n", strings.ToLower(object.Kind), object.Name, text); err != nil {
			return err
		}
	}
	return err
}
