package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
)

const drainHelp = `End the processes of all pods of the running host and unmount all volumes. Nothing
is deleted: the next host starts the pods and mounts the holds again, as after a
power loss. The running host mounts nothing more.

The systemd unit runs it with --at-shutdown before it stops the host, so that the
volumes are unmounted before the filesystem below them.`

// drainConfig are the flags of `host drain`.
type drainConfig struct {
	atShutdown bool
	timeout    time.Duration
}

func newHostDrainCommand(host *hostConfig) *cobra.Command {
	var c drainConfig
	drain := &cobra.Command{
		Use:   "drain",
		Short: "End the pods and unmount the volumes, for a machine that shuts down",
		Long:  drainHelp,
		Args:  arguments(cobra.NoArgs),
		RunE: func(caller *cobra.Command, _ []string) error {
			if c.timeout != 0 && c.timeout < time.Second {
				return usageErrorf("--timeout %s is below a second", c.timeout)
			}
			if c.atShutdown && !shutsDown(caller.Context(), command.NewSystem()) {
				return nil
			}
			root, err := host.absolute()
			if err != nil {
				return err
			}
			client := api.DialRoot(root)
			defer client.Close()
			return client.Drain(caller.Context(), int64(c.timeout/time.Second))
		},
	}
	flags := drain.Flags()
	flags.BoolVar(&c.atShutdown, "at-shutdown", false, "do nothing unless systemd shuts this machine down")
	flags.DurationVar(&c.timeout, "timeout", 0,
		"how long to wait until everything is unmounted (default: the longest grace period of the pods and a minute); the host continues after it")
	return drain
}

// shutsDown reports whether systemd is stopping the machine, which
// `systemctl is-system-running` calls "stopping" (its exit code is 1 for every state
// but "running"). Without systemd there is no answer, and no shutdown.
func shutsDown(ctx context.Context, runner command.Runner) bool {
	result, err := runner.Run(ctx, command.Command{Name: "systemctl", Args: []string{"is-system-running"}})
	return err == nil && strings.TrimSpace(string(result.Stdout)) == "stopping"
}
