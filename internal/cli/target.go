package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// target is what a command reads: a host, or a cluster.
type target struct {
	host    hostClient
	cluster cluster.Target
	// plugin says that the command is one of kubectl: it reads a cluster, and has no flags
	// of a host.
	plugin bool
}

func (t *target) bind(flags *pflag.FlagSet) {
	usage := "read the cluster of this kubeconfig `FILE` in place of a host"
	if t.plugin {
		usage = "`FILE` that names the cluster (default: $KUBECONFIG, or ~/.kube/config)"
	} else {
		t.host.bind(flags)
	}
	flags.StringVar(&t.cluster.Kubeconfig, "kubeconfig", "", usage)
	flags.StringVar(&t.cluster.Context, "context", "", "`NAME` of the context in the kubeconfig (default: the current one)")
}

// isCluster reports whether a cluster is read.
func (t *target) isCluster() bool { return t.plugin || t.cluster != cluster.Target{} }

// load returns the configuration of the cluster, and the namespace: that of the flag, or
// of the context.
func (t *target) load(command *cobra.Command) (*rest.Config, string, error) {
	config, namespace, err := t.cluster.Load()
	if flag := command.Flags().Lookup("namespace"); flag != nil && flag.Changed {
		namespace = t.host.namespace
	}
	return config, namespace, err
}

// clusterReader reads the cluster that a configuration leads to, until done is called.
func clusterReader(config *rest.Config, agent string) (reader why.REST, done func(), err error) {
	config = rest.CopyConfig(config)
	config.UserAgent = agent
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return why.REST{}, nil, fmt.Errorf("connect to the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return why.REST{}, nil, fmt.Errorf("the address of the API server: %w", err)
	}
	return why.REST{Base: base.String(), Client: client}, client.CloseIdleConnections, nil
}
