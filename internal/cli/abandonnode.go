package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdfast-csi/holdfast/internal/kube/abandon"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

const abandonNodeHelp = `End what belongs to a node of a cluster that was lost for good, for a driver whose
volumes are on the disks of its nodes. Only the node itself could delete its volumes
and snapshots, so that their objects would stay for ever.

Delete the Node object first: a node that exists is refused. The command ends
PersistentVolumes with the policy Delete whose claims were deleted, snapshot
contents that are being deleted, the selection of the node for claims without a
volume, and the node's intents. It lists what stays, and why: claims are the users'
to delete, and volumes with the policy Retain keep their record.

Nothing on the node's disks is deleted. It needs the rights of an administrator.`

// abandonNodeFlags are the flags of the command abandon-node.
type abandonNodeFlags struct {
	kubeconfig, driver string
	dryRun             bool
}

func newAbandonNodeCommand() *cobra.Command {
	var f abandonNodeFlags
	command := &cobra.Command{
		Use:     "abandon-node NODE",
		Short:   "End the volumes of a node that was lost for good",
		Long:    abandonNodeHelp,
		Example: "  holdfast abandon-node worker-3 --kubeconfig ~/.kube/config --dry-run",
		Args:    one("the name of the node"),
		RunE: func(command *cobra.Command, given []string) error {
			return f.run(command.Context(), command, given[0])
		},
	}
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the cluster's kubeconfig `FILE`; the pod's service account if it is not given")
	flags.StringVar(&f.driver, "driver", "local.holdfast.dev", "the `NAME` of the CSI driver")
	flags.BoolVar(&f.dryRun, "dry-run", false, "list what would be ended, and change nothing")
	return command
}

func (f *abandonNodeFlags) run(ctx context.Context, command *cobra.Command, node string) error {
	clients, err := cluster.Connect(f.kubeconfig, "holdfast-abandon-node")
	if err != nil {
		return err
	}
	entries, failure := abandon.Node(ctx, node, abandon.Options{Clients: clients, Driver: f.driver, DryRun: f.dryRun})
	table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, entry := range entries {
		result := "stays: " + entry.Why
		switch {
		case entry.Ended && f.dryRun:
			result = "would end"
		case entry.Ended:
			result = "ended"
		}
		if _, err := fmt.Fprintf(table, "%s\t%s\t%s\n", entry.Kind, entry.Name, result); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return failure
}
