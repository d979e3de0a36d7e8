package cluster

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// The nodes of a cluster with Options.Machines are machines of their own, such as virtual
// ones. Who owns them answers on that socket:
//
//	POST /nodes/NODE/start   turns one on that is as the Machine in the body says, and
//	                         returns when its kubelet and containerd were started
//	POST /nodes/NODE/stop    cuts its power
//	POST /nodes/NODE/run     runs the command in the body, an array, and returns its output,
//	                         a string
//
// The kubelet and containerd are units of these names. The images of Options.Images, and
// those that are imported later, are files of these names in imagesInNode.

// imagesInNode is the directory of a machine that has the archives of images.
const imagesInNode = "/opt/kubernetes/images"

// Machine is what a machine needs to be a node.
type Machine struct {
	// Namespace is the path of the network namespace in which the tap device Tap is.
	Namespace string `json:"namespace"`
	Tap       string `json:"tap"`
	// HardwareAddress, Address (with the length of its network) and Gateway are those of
	// the machine's network device.
	HardwareAddress string `json:"hardwareAddress"`
	Address         string `json:"address"`
	Gateway         string `json:"gateway"`
	// Containerd and Kubelet are the arguments of these programs.
	Containerd []string `json:"containerd"`
	Kubelet    []string `json:"kubelet"`
	// Files are their files, by the path in /etc.
	Files map[string][]byte `json:"files"`
}

// OnMachines says that the nodes are machines of their own.
func (c *Cluster) OnMachines() bool { return c.record.Options.Machines != "" }

// machine describes a node.
func (c *Cluster) machine(name string) (Machine, error) {
	index := slices.Index(c.Nodes, name) + 1
	if index == 0 {
		return Machine{}, fmt.Errorf("cluster: no node %q", name)
	}
	r := c.record
	files, err := r.nodeConfig(c.layout, name, index)
	return Machine{
		Namespace: fmt.Sprintf("/proc/%d/ns/net", r.Supervisor.PID), Tap: nodePort(index),
		HardwareAddress: hardwareAddress(index).String(),
		Address:         r.Plan.bridged(r.Plan.node(index)), Gateway: r.Plan.controlPlane().String(),
		Containerd: append(containerdArgs(), r.Options.Flags["containerd"]...),
		Kubelet:    append(r.kubeletArgs(name), r.Options.Flags["kubelet"]...),
		Files:      files,
	}, err
}

func (c *Cluster) askMachine(ctx context.Context, node, verb string, body, result any) error {
	return callControl(ctx, c.record.Options.Machines, "POST", "/nodes/"+node+"/"+verb, body, result)
}

func (c *Cluster) startMachine(ctx context.Context, node string) error {
	m, err := c.machine(node)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.on[node] = time.Now()
	c.mu.Unlock()
	return c.askMachine(ctx, node, "start", m, nil)
}

func (c *Cluster) stopMachine(ctx context.Context, node string) error {
	c.mu.Lock()
	delete(c.on, node)
	c.mu.Unlock()
	return c.askMachine(ctx, node, "stop", nil, nil)
}

func (c *Cluster) machinesStarted() map[string]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.on)
}

// startMachines starts the machines, if the nodes are some, when the network has their
// devices.
func (c *Cluster) startMachines(ctx context.Context) error {
	if !c.OnMachines() {
		return nil
	}
	if err := c.WaitAPI(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := c.startMachine(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// onMachine runs a program on a node's machine and returns its output.
func (c *Cluster) onMachine(ctx context.Context, node string, args []string) (string, error) {
	var output string
	err := c.askMachine(ctx, node, "run", args, &output)
	return output, err
}

func (c *Cluster) importOnMachine(ctx context.Context, node, archive string) error {
	_, err := c.onMachine(ctx, node, []string{
		filepath.Join(binariesInNode, "ctr"), "--namespace", "k8s.io", "images", "import", "--local",
		filepath.Join(imagesInNode, filepath.Base(archive)),
	})
	return err
}
