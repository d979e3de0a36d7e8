package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// kubectlPlugin is the name of the binary under which kubectl finds it as
// 'kubectl holdfast' (https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins).
const kubectlPlugin = "kubectl-holdfast"

// Main runs a process: with the commands of holdfast, or those of the kubectl plugin if
// that is the name of the program.
func Main(ctx context.Context, stamped string, command []string, stdout, stderr io.Writer) int {
	if strings.TrimSuffix(filepath.Base(command[0]), ".exe") != kubectlPlugin {
		return Run(ctx, stamped, command[1:], stdout, stderr)
	}
	return execute(ctx, newKubectlPlugin(stamped), command[1:], stdout, stderr) //nolint:contextcheck // as Run
}

func newKubectlPlugin(stamped string) *cobra.Command {
	root := &cobra.Command{
		Use:           kubectlPlugin,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl holdfast"},
		Short:         "Explain and show the volumes of a cluster",
		Args:          unknownCommand,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(unknownFlag)
	root.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	root.AddCommand(newWhyCommand(true), newStatusCommand(true), newClusterSnapshotCommand(), newNoTopCommand(),
		newBugreportCommand(stamped, true), newVersionCommand(versionOrBuild(stamped)))
	return root
}

// newNoTopCommand says where a cluster's figures are.
func newNoTopCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "top",
		Short: "Say where the figures of volumes are",
		Args:  arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			return usageErrorf("top: the figures of a cluster's volumes are metrics of the nodes: " +
				"set --metrics-volumes of the driver, and use the dashboards of deploy/monitoring; on one machine there is 'holdfast top'")
		},
	}
}
