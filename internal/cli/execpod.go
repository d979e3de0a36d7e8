package cli

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// execPod are the flags of exec in a pod's container.
type execPod struct {
	container       string
	stdin, terminal bool
}

func (e *execPod) isSet() bool { return e.container != "" || e.stdin || e.terminal }

// runInPod runs POD [flags] -- COMMAND….
func (c *execConfig) runInPod(command *cobra.Command, given []string) error {
	words, err := c.cutPod(command, given)
	if err != nil {
		return err
	}
	request := api.ExecRequest{
		Namespace: c.namespace, Pod: podName(given[0]), Container: c.pod.container, Command: words,
		Stdin: c.pod.stdin, Terminal: c.pod.terminal,
	}
	if checkNames([]string{request.Pod}) != nil {
		return usageErrorf("%q is not a pod's name", given[0])
	}
	streams := api.ExecStreams{Stdin: command.InOrStdin(), Stdout: command.OutOrStdout(), Stderr: command.ErrOrStderr()}
	client := c.dial()
	defer client.Close()
	// Signals are the command's; what ends this process is the end of the command.
	ctx, cancel := context.WithCancel(context.WithoutCancel(command.Context()))
	defer cancel()
	watched, stop := watchSignals(request.Terminal, cancel)
	defer stop()
	if request.Terminal {
		restore, err := rawTerminal(command, &request)
		if err != nil {
			return err
		}
		defer restore()
		streams.Sizes = watchSize(ctx)
	} else {
		streams.Signals = watched
	}
	code, err := client.Exec(ctx, request, streams)
	if errors.Is(err, context.Canceled) {
		return errors.New("left without waiting for the command; the host ends it within seconds")
	}
	if err == nil && code != 0 {
		return ExitError{Code: code}
	}
	return err
}

// cutPod takes the command, and the flags after the pod's name.
func (c *execConfig) cutPod(command *cobra.Command, given []string) (words []string, err error) {
	if command.ArgsLenAtDash() == 0 {
		return nil, usageErrorf("say which pod, or which volumes: exec POD -- COMMAND, or exec --volume CLAIM:/PATH -- COMMAND")
	}
	end := slices.Index(given, "--")
	if end < 0 || end == len(given)-1 {
		return nil, usageErrorf("no command is given: exec POD -- COMMAND")
	}
	flags := command.Flags()
	if err := flags.Parse(given[1:end]); err != nil {
		return nil, &UsageError{Err: err}
	}
	if flags.NArg() > 0 {
		return nil, usageErrorf("unexpected %q: put -- before the command", flags.Arg(0))
	}
	if len(c.volumes) > 0 || len(c.inline) > 0 {
		return nil, usageErrorf("either a pod or --volume and --inline, not both")
	}
	return given[end+1:], nil
}

// rawTerminal gives the terminal's keys to the command, and the request its size.
func rawTerminal(command *cobra.Command, request *api.ExecRequest) (restore func(), err error) {
	input, ok := command.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(input.Fd())) {
		return nil, usageErrorf("-t: standard input is not a terminal; leave out -t")
	}
	if columns, rows, err := term.GetSize(int(input.Fd())); err == nil {
		request.Size = api.Size{Columns: uint16(columns), Rows: uint16(rows)} //nolint:gosec // the kernel has 16 bits for each
	}
	before, err := term.MakeRaw(int(input.Fd()))
	if err != nil {
		return nil, err
	}
	return func() { _ = term.Restore(int(input.Fd()), before) }, nil
}
