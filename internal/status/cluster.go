package status

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/why"
)

// Cluster is the source of a cluster's objects.
type Cluster struct {
	why.REST
	name    string
	clients Clients
}

// NewCluster makes the source of the cluster that a configuration leads to.
func NewCluster(config *rest.Config, name string) (*Cluster, error) {
	connection, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the address of the API server: %w", err)
	}
	clients, err := cluster.NewClients(config, "holdfast-status")
	if err != nil {
		return nil, err
	}
	return &Cluster{
		REST: why.REST{Base: base.String(), Client: connection}, name: name,
		clients: Clients{Core: clients.Core, Snapshots: clients.Snapshots},
	}, nil
}

// Name implements Source.
func (c *Cluster) Name() string { return "cluster " + c.name }

// HasJournal implements Source.
func (c *Cluster) HasJournal() bool { return false }

func (c *Cluster) kinds() []string { return kindsOf(c.clients.resources()) }

func (c *Cluster) follow(ctx context.Context, into *Mirror) { follow(ctx, c.clients.resources(), into) }
