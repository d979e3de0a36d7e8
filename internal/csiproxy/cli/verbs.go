package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/service"
)

const (
	// restart is the time from a crash to the restart of the service.
	restart = 10 * time.Second
	// verbTime bounds the wait of a verb; it exceeds the service's own limits.
	verbTime = 60 * time.Second
)

func newInstallCommand(machine Machine) *cobra.Command {
	c := config{machine: machine}
	command := &cobra.Command{
		Use:   "install",
		Short: "Make csi-proxy a Windows service that starts with the machine, or change the installed one",
		Long: `Make csi-proxy a Windows service that starts with the machine and again after
a crash, or change the installed service to these flags, which are those of run.
A running service uses them from its next start on. The event log has start and
stop, errors, and pipes of other processes, with the service's name as source;
the rest of the log is stored only with --log-file.`,
		Args: none,
	}
	flags := c.flags()
	flags.Lookup("windows-service").Hidden = true
	command.Flags().AddFlagSet(flags)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := c.check(); err != nil {
			return err
		}
		arguments, err := c.arguments(command.Flags())
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(command.Context(), verbTime)
		defer cancel()
		notes, err := service.Install(ctx, service.Config{
			Name: c.serviceName, DisplayName: "Holdfast CSI proxy (" + c.serviceName + ")",
			Description: "Does privileged storage operations for CSI node plugins, over named pipes.",
			Program:     program, Arguments: arguments, Restart: restart, StopTime: stopTime + drain,
		})
		for _, note := range notes {
			_, _ = fmt.Fprintln(command.ErrOrStderr(), "note:", note)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(command.OutOrStdout(),
			"The service %s is installed. It starts with the machine, or by: csi-proxy start --service-name=%s\n", c.serviceName, c.serviceName)
		return err
	}
	return command
}

// newVerb is a command about the service of a name.
func newVerb(name, short string, do func(ctx context.Context, service string) error, done string) *cobra.Command {
	var of string
	command := &cobra.Command{
		Use: name, Short: short, Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), verbTime)
			defer cancel()
			if err := do(ctx, of); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "The service %s %s.\n", of, done)
			return err
		},
	}
	command.Flags().AddFlagSet(nameFlag(&of))
	return command
}

func newStartCommand() *cobra.Command {
	return newVerb("start", "Start the service and wait until it serves", service.Start, "runs")
}

func newStopCommand() *cobra.Command {
	return newVerb("stop", "Stop the service and wait until its process is gone", service.Stop, "has stopped")
}

func newRemoveCommand() *cobra.Command {
	return newVerb("remove", "Stop the service and delete it", service.Remove, "is not installed")
}

func newStatusCommand() *cobra.Command {
	var of string
	command := &cobra.Command{
		Use: "status", Short: "Print the state of the service; the exit code is 0 if it runs and 1 otherwise", Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			status, err := service.Query(of)
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			_, _ = fmt.Fprintf(out, "service: %s\nstate: %s\n", of, status.State)
			if status.ProcessID != 0 {
				_, _ = fmt.Fprintf(out, "process: %d\n", status.ProcessID)
			}
			if status.Start != "" {
				_, _ = fmt.Fprintf(out, "start: %s\ncommand: %s\n", status.Start, status.Command)
			}
			if status.State == service.StateStopped {
				_, _ = fmt.Fprintf(out, "last exit code: %d\n", status.ExitCode)
			}
			if status.State != service.Running {
				return errNotRunning
			}
			return nil
		},
	}
	command.Flags().AddFlagSet(nameFlag(&of))
	return command
}

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary and of the APIs that it serves", Args: none,
		RunE: func(command *cobra.Command, _ []string) error {
			out := command.OutOrStdout()
			_, _ = fmt.Fprintln(out, "csi-proxy (holdfast) "+version)
			for _, definition := range versions() {
				_, _ = fmt.Fprintln(out, definition.Pipe())
			}
			return nil
		},
	}
}
