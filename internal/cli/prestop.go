package cli

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/drain"
	"github.com/holdfast-csi/holdfast/internal/telemetry"
)

const preStopHelp = `Wait, on a node that is being emptied, until its volumes are detached.

It is for the preStop hook of the node's container: the kubelet stops the driver
when the hook has ended. Without a driver no volume is unmounted, and the cluster detaches
by force six minutes later. On a node that is not being emptied it ends at once.

The node is being emptied when it is unschedulable (kubectl drain, cordon), has a
taint of the cluster autoscaler or of Karpenter, or when its Node no longer
exists. After --timeout it ends with 1, and names the volumes that are still
attached; without --timeout the pod's grace period is the bound.`

// preStopFlags are the flags of the command pre-stop.
type preStopFlags struct {
	kubeconfig, node, driver string
	timeout                  time.Duration
	version                  string
}

func newPreStopCommand(version string) *cobra.Command {
	f := preStopFlags{version: version}
	command := &cobra.Command{
		Use:     "pre-stop",
		Aliases: []string{"pre-stop-hook"}, // its name in the reference EBS driver
		Short:   "Wait until the volumes of a drained node are detached",
		Long:    preStopHelp,
		Args:    arguments(cobra.NoArgs),
		RunE:    func(command *cobra.Command, _ []string) error { return f.run(command) },
	}
	flags := command.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server (default: that of the pod)")
	flags.StringVar(&f.node, "node-name", cmp.Or(os.Getenv("NODE_NAME"), os.Getenv("CSI_NODE_NAME")),
		"`NAME` of this machine's Node object (default $NODE_NAME, $CSI_NODE_NAME)")
	flags.StringVar(&f.driver, "driver-name", "ebs.csi.aws.com", "CSI plugin `NAME` of the volumes to wait for")
	flags.DurationVar(&f.timeout, "timeout", 0, "longest time to wait; give the driver some 12 s of the pod's grace period (default: no bound)")
	return command
}

func (f preStopFlags) run(command *cobra.Command) error {
	if f.node == "" {
		return usageErrorf("--node-name is not given, nor is $NODE_NAME")
	}
	logger, err := telemetry.NewLogger(command.ErrOrStderr(), telemetry.FormatAuto, "info")
	if err != nil {
		return err
	}
	klog.SetSlogLogger(logger.With("component", "client-go"))
	clients, err := cluster.Connect(f.kubeconfig, "holdfast-pre-stop/"+f.version)
	if err != nil {
		return err
	}
	ctx := command.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	return drain.Wait(ctx, drain.Options{Client: clients.Core, Node: f.node, Driver: f.driver, Logger: logger})
}
