package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Cluster is a running cluster.
type Cluster struct {
	// Dir is its state directory.
	Dir string
	// ID is in the names of its objects outside of its namespaces.
	ID string
	// Kubeconfig is the administrator's kubeconfig file, for use on the machine itself.
	Kubeconfig string
	// Server is the API server's URL.
	Server string
	// Nodes are the names of its nodes.
	Nodes []string

	layout layout
	record record
	api    *apiClient

	mu sync.Mutex
	// on has, for each node that is a machine, when this Cluster turned it on.
	on map[string]time.Time
}

// Open attaches to the cluster that runs in a state directory.
func Open(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	l := layout(dir)
	r, err := readRecord(l)
	if err != nil {
		return nil, fmt.Errorf("cluster: none in %s: %w", dir, err)
	}
	running, err := r.Supervisor.running()
	if err != nil {
		return nil, err
	}
	if !running {
		return nil, fmt.Errorf("cluster: the one in %s has ended: take it down, then up again", dir)
	}
	return open(l, r)
}

func open(l layout, r record) (*Cluster, error) {
	api, err := newAPIClient(l.kubeconfig())
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Dir: string(l), ID: r.ID, Kubeconfig: l.kubeconfig(), Server: r.Plan.server(), Nodes: r.Options.nodeNames(),
		layout: l, record: r, api: api, on: make(map[string]time.Time),
	}, nil
}

// Down ends the cluster; see the function Down.
func (c *Cluster) Down() error { return Down(c.Dir) }

// Status asks the supervisor.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	var status Status
	err := callControl(ctx, c.layout.control(), "GET", "/status", nil, &status)
	return status, err
}

// NodeRoot returns the path of a node's root directory on the machine: the node's files
// without its mounts.
func (c *Cluster) NodeRoot(node string) string { return c.layout.nodeRoot(node) }

// Machine returns this machine's address in the cluster's network, at which nodes and
// pods reach its servers.
func (c *Cluster) Machine() netip.Addr { return c.record.Plan.machine() }

// PodNetwork returns the network of a node's pods, and the zero Prefix for
// a node of another cluster.
func (c *Cluster) PodNetwork(node string) netip.Prefix {
	if i := slices.Index(c.Nodes, node); i >= 0 {
		return c.record.Plan.pods(i + 1)
	}
	return netip.Prefix{}
}

// LogDir returns the directory of all programs' logs. Down keeps it.
func (c *Cluster) LogDir() string { return c.layout.path("logs") }

// StopNode stops a node as a power failure does: its processes are killed, its mounts and
// loop devices are gone, and Kubernetes is not informed.
func (c *Cluster) StopNode(ctx context.Context, node string) error {
	if c.OnMachines() {
		return c.stopMachine(ctx, node)
	}
	return c.post(ctx, "/nodes/"+node+"/stop")
}

// StartNode starts a stopped node with its disk. It is Ready some seconds later; see
// WaitReady.
func (c *Cluster) StartNode(ctx context.Context, node string) error {
	if c.OnMachines() {
		return c.startMachine(ctx, node)
	}
	return c.post(ctx, "/nodes/"+node+"/start")
}

// StopKubelet ends the kubelet of a node; its containers continue.
func (c *Cluster) StopKubelet(ctx context.Context, node string) error {
	return c.onNode(ctx, node, "kubelet", "stop")
}

// StartKubelet starts the kubelet of a node that StopKubelet has ended.
func (c *Cluster) StartKubelet(ctx context.Context, node string) error {
	return c.onNode(ctx, node, "kubelet", "start")
}

// RestartKubelet ends the kubelet of a node and starts it again.
func (c *Cluster) RestartKubelet(ctx context.Context, node string) error {
	return c.onNode(ctx, node, "kubelet", "restart")
}

// RestartContainerd restarts a node's containerd; its containers continue.
func (c *Cluster) RestartContainerd(ctx context.Context, node string) error {
	return c.onNode(ctx, node, "containerd", "restart")
}

// RestartProgram restarts a program of the control plane, such as
// kube-apiserver. It does not wait until that answers again.
func (c *Cluster) RestartProgram(ctx context.Context, program string) error {
	return c.post(ctx, "/programs/"+program+"/restart")
}

// StopProgram ends a program of the control plane until StartProgram.
func (c *Cluster) StopProgram(ctx context.Context, program string) error {
	return c.post(ctx, "/programs/"+program+"/stop")
}

// StartProgram starts a program that StopProgram has ended.
func (c *Cluster) StartProgram(ctx context.Context, program string) error {
	return c.post(ctx, "/programs/"+program+"/start")
}

func (c *Cluster) post(ctx context.Context, path string) error {
	return callControl(ctx, c.layout.control(), "POST", path, nil, nil)
}

func (c *Cluster) onNode(ctx context.Context, node, program, verb string) error {
	if c.OnMachines() {
		_, err := c.onMachine(ctx, node, []string{"systemctl", verb, program})
		return err
	}
	socket := filepath.Join(c.NodeRoot(node), "run", nodeSocket)
	if _, err := os.Stat(socket); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cluster: node %s does not run", node)
	}
	return callControl(ctx, socket, "POST", "/programs/"+program+"/"+verb, nil, nil)
}
