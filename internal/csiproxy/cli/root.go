// Package cli is the command line of csi-proxy: one file per command, each
// turning flags into the options of the package that does the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error of the command line.
type usageError struct{ error }

// Unwrap returns the error.
func (e usageError) Unwrap() error { return e.error }

func usageErrorf(format string, arguments ...any) error {
	return usageError{fmt.Errorf(format, arguments...)}
}

// errNotRunning makes status exit with exitFailed, without a message.
var errNotRunning = errors.New("the service does not run")

// NewRoot returns the csi-proxy command with all its subcommands.
func NewRoot(version string, machine Machine) *cobra.Command {
	root := &cobra.Command{
		Use:   "csi-proxy",
		Short: "Do privileged storage operations for CSI node plugins, over named pipes of this Windows machine",
		Long: `csi-proxy serves named pipes on which CSI node plugins, which are containers
without privileges, ask for storage operations of this Windows machine.

Flags without a command are those of "run", also with one dash, so that command
lines of the csi-proxy of the Kubernetes project work: csi-proxy -windows-service
-kubelet-path=C:\var\lib\kubelet`,
		SilenceUsage:               true,
		SilenceErrors:              true,
		SuggestionsMinimumDistance: 2,
		Args: func(_ *cobra.Command, given []string) error {
			if len(given) > 0 {
				return usageErrorf("unknown command %q", given[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(newRunCommand(version, machine), newInstallCommand(machine), newStartCommand(), newStopCommand(),
		newRemoveCommand(), newStatusCommand(), newVersionCommand(version))
	return root
}

// Run executes the command line of a proxy that works on the machine, and returns
// the exit code. It ends early when ctx does.
func Run(ctx context.Context, version string, machine Machine, arguments []string, stdout, stderr io.Writer) int {
	root := NewRoot(version, machine) //nolint:contextcheck // cobra hands ctx to the commands: ExecuteContextC
	root.SetArgs(spelled(arguments))
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errNotRunning):
		return exitFailed
	}
	_, _ = fmt.Fprintf(stderr, "csi-proxy: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintf(stderr, "See '%s --help'.\n", command.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// oneDash is a flag in upstream's form, that of Go's package flag.
var oneDash = regexp.MustCompile(`^-[a-z][a-z_-]+(=.*)?$`)

// spelled converts upstream's command lines: flags without a command are those of run, and
// may have one dash.
func spelled(arguments []string) []string {
	if len(arguments) == 0 {
		return []string{"run"}
	}
	full := make([]string, 0, len(arguments)+1)
	if first := arguments[0]; strings.HasPrefix(first, "-") && !slices.Contains([]string{"-h", "-help", "--help"}, first) {
		full = append(full, "run")
	}
	for i, argument := range arguments {
		if argument == "--" {
			return append(full, arguments[i:]...)
		}
		if oneDash.MatchString(argument) {
			argument = "-" + argument
		}
		full = append(full, argument)
	}
	return full
}

// none is a cobra check: no positional arguments.
func none(command *cobra.Command, given []string) error {
	if len(given) > 0 {
		return usageErrorf("%s takes no arguments, but was given %q", command.Name(), given)
	}
	return nil
}
