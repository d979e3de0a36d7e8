package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

const csiWatchHelp = `Log the calls of a driver, and its answers.

It listens on one socket and forwards every call to the driver's socket unchanged:
also unknown calls, streams, metadata, deadlines and errors with their details.
Give the caller the new socket in place of the driver's.

Each call is one line when it ends: the RPC, its object, its duration, the code
and the driver's message. --verbose adds request and answer, without secrets. It
ends on SIGTERM, after the calls in flight.`

// csiWatchFlags are the flags of the command csi watch.
type csiWatchFlags struct {
	listen, target, logFormat string
	verbose                   bool
}

func newCSIWatchCommand() *cobra.Command {
	var f csiWatchFlags
	command := &cobra.Command{
		Use:     "watch --listen unix:///NEW.sock --to unix:///DRIVER.sock",
		Short:   "Stand between a caller and a driver, and log each call",
		Long:    csiWatchHelp,
		Example: "  holdfast csi watch --listen unix:///run/csi/watched.sock --to unix:///run/csi/csi.sock --verbose",
		Args:    arguments(cobra.NoArgs),
		RunE:    func(command *cobra.Command, _ []string) error { return f.run(command) },
	}
	flags := command.Flags()
	flags.StringVar(&f.listen, "listen", "", "`unix:///PATH` to listen on; only the owner of this process may connect")
	flags.StringVar(&f.target, "to", "", "the driver's socket, `unix:///PATH`")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log requests and answers, too, without secrets")
	flags.StringVar(&f.logFormat, "log-format", telemetry.FormatAuto, "auto (text on a terminal), text or json")
	return command
}

func (f *csiWatchFlags) run(command *cobra.Command) error {
	if f.listen == "" || f.target == "" {
		return usageErrorf("--listen and --to are both needed")
	}
	path, err := unixsocket.Path(f.listen)
	if err != nil {
		return &UsageError{Err: err}
	}
	target, err := client.SocketPath(f.target)
	if err != nil {
		return &UsageError{Err: err}
	}
	if target == path {
		return usageErrorf("--listen and --to are the same socket")
	}
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), f.logFormat, "info")
	if err != nil {
		return &UsageError{Err: err}
	}
	between, err := client.NewRelay(target, client.RelayOptions{Logger: logger, Verbose: f.verbose})
	if err != nil {
		return err
	}
	listener, err := unixsocket.Listen(command.Context(), path)
	if err != nil {
		return fmt.Errorf("csi watch: %w", err)
	}
	logger.Info("watching", "listen", path, "to", target)
	return between.Serve(command.Context(), listener)
}
