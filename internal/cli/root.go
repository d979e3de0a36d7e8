// Package cli is the command line of holdfast: one file per command, each
// turning flags into the options of the package that does the work. It wires
// constructors together and has no logic itself.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// The exit codes of every command. A command that runs another program
// may end with that program's code instead; see ExitError.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// UsageError says that the command line is wrong.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the fault.
func (e *UsageError) Unwrap() error { return e.Err }

func usageErrorf(format string, arguments ...any) error {
	return &UsageError{Err: fmt.Errorf(format, arguments...)}
}

// ExitError ends the process with Code and prints nothing: the command has
// already said what there is to say.
type ExitError struct{ Code int }

func (e ExitError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// NewRoot returns the holdfast command with all its subcommands. stamped is the
// version that the build gave the binary, or "".
func NewRoot(stamped string) *cobra.Command {
	root := &cobra.Command{
		Use:           "holdfast",
		Short:         "Give workloads their volumes, and keep the data safe",
		Args:          unknownCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(unknownFlag)
	version := versionOrBuild(stamped)
	showVersion := root.Flags().Bool("version", false, "print the version of this binary")
	root.RunE = func(command *cobra.Command, _ []string) error {
		if *showVersion {
			return printVersion(command, version)
		}
		return command.Help()
	}
	root.AddCommand(newDriverCommand(version), newCSICommand(), newWhyCommand(false), newExportCommand(),
		newSidecarsCommand(version), newCoordinateCommand(version), newPreStopCommand(version), newHostCommand(version), newRunCommand(version),
		newWorkloadCommand(), newPolicyCommand(version), newAbandonNodeCommand(), newVerifyCommand(version), newVersionCommand(version))
	root.AddCommand(newExecCommand(), newCopyCommand(), newHoldCommand(), newReleaseCommand(), newSystemdCommand(), newApplyCommand(),
		newCreateCommand(), newRestoreCommand(), newResizeCommand(),
		newGetCommand(), newDescribeCommand(), newDeleteCommand(), newLogsCommand(), newBugreportCommand(version, false),
		newStatusCommand(false),
		newTopCommand())
	return root
}

// Run executes the command line and returns the exit code. It ends early when
// ctx does.
func Run(ctx context.Context, stamped string, arguments []string, stdout, stderr io.Writer) int {
	root := NewRoot(stamped) //nolint:contextcheck // cobra hands ctx to the commands: ExecuteContextC
	return execute(ctx, root, asSidecars(root, arguments), stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, arguments []string, stdout, stderr io.Writer) int {
	root.SetArgs(arguments)
	root.SetOut(stdout)
	root.SetErr(stderr)
	command, err := root.ExecuteContextC(ctx)
	return report(command, err, stderr)
}

func report(command *cobra.Command, err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	if status, ok := errors.AsType[ExitError](err); ok {
		return status.Code
	}
	_, _ = fmt.Fprintf(stderr, "%s: %v\n", command.Root().DisplayName(), err)
	if _, ok := errors.AsType[*UsageError](err); ok {
		_, _ = fmt.Fprintf(stderr, "See '%s --help'.\n", command.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// arguments makes a cobra check of positional arguments end with exitUsage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(command *cobra.Command, given []string) error {
		if err := check(command, given); err != nil {
			return &UsageError{Err: err}
		}
		return nil
	}
}

// one is the check of commands with one argument, which name it.
func one(missing string) cobra.PositionalArgs {
	return func(_ *cobra.Command, given []string) error {
		switch {
		case len(given) == 0:
			return usageErrorf("say %s", missing)
		case len(given) > 1:
			return usageErrorf("one argument expected: unexpected %q", given[1])
		}
		return nil
	}
}
