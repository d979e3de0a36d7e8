package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options say what cluster Up starts. Dir and Binaries are required.
type Options struct {
	// Dir is the directory of the state: the record, credentials, logs, and the nodes'
	// root directories with the data of local volumes. It may exist, but not be that of a
	// running cluster. Its filesystem needs space for the volumes.
	Dir string
	// Binaries is the directory that `make kubernetes-binaries` fills.
	Binaries string
	// Nodes is how many there are; 0 means two. They are called node-1, node-2…
	Nodes int
	// Zone is that of all nodes, named as those of AWS are, such as us-west-2a in
	// the region us-west-2. If it is empty each has another one, test-1, test-2…
	Zone string
	// NoNodes starts the control plane alone, for tests that need no kubelet.
	NoNodes bool
	// Machines is the path of a socket whose server owns the nodes' machines, if the nodes
	// are no processes of this machine: see machines.go. They have the files of Images.
	Machines string
	// FeatureGates go to the API server, the controller manager, the scheduler
	// and the kubelets.
	FeatureGates map[string]bool
	// RuntimeConfig is the API server's --runtime-config, such as
	// "storage.k8s.io/v1alpha1" to "true".
	RuntimeConfig map[string]string
	// Flags are more flags of a program, by its name: the later of two equal
	// ones counts. "kube-controller-manager": {"--node-monitor-grace-period=20s"}.
	Flags map[string][]string
	// Kubelet has fields of KubeletConfiguration that replace those of this package.
	// Their values have JSON types.
	Kubelet map[string]any
	// Images are image archives that every node gets before Up returns.
	Images []string
	// Attached ends the cluster with the process that called Up, also if it crashes: for
	// tests. Otherwise the cluster runs until Down.
	Attached bool
}

// maxNodes is the limit of the address plan, see addresses.go.
const maxNodes = 60

// complete sets the defaults and rejects invalid options.
func (o Options) complete() (Options, error) {
	if o.Dir == "" || o.Binaries == "" {
		return o, errors.New("cluster: Options need Dir and Binaries")
	}
	if o.NoNodes && (o.Nodes != 0 || len(o.Images) > 0) {
		return o, errors.New("cluster: NoNodes goes with neither Nodes nor Images")
	}
	if o.Machines != "" && o.NoNodes {
		return o, errors.New("cluster: Machines and NoNodes exclude each other")
	}
	if o.Nodes == 0 && !o.NoNodes {
		o.Nodes = 2
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return o, fmt.Errorf("cluster: %d nodes: 1 to %d are possible", o.Nodes, maxNodes)
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, err
	}
	if o.Binaries, err = filepath.Abs(o.Binaries); err != nil {
		return o, err
	}
	return o, o.check()
}

func (o Options) check() error {
	if os.Geteuid() != 0 {
		return errors.New("cluster: nodes mount and make namespaces: run this as root")
	}
	for _, name := range programs() {
		if _, err := os.Stat(filepath.Join(o.Binaries, name)); err != nil {
			return fmt.Errorf("cluster: %w: run `make kubernetes-binaries`", err)
		}
	}
	for _, tool := range []string{"/usr/lib/cni/bridge", "/usr/sbin/runc"} {
		if _, err := os.Stat(tool); err != nil {
			return fmt.Errorf("cluster: %w: run test/kubernetes/install-packages", err)
		}
	}
	return nil
}

// programs are the files that Binaries must contain.
func programs() []string {
	return []string{
		"cluster", "containerd", "containerd-shim-runc-v2", "crds", "ctr", "etcd", "kube-apiserver",
		"kube-controller-manager", "kube-scheduler", "kubectl", "kubelet", "snapshot-controller",
	}
}

// nodeNames lists the nodes in their order.
func (o Options) nodeNames() []string {
	names := make([]string, o.Nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i+1)
	}
	return names
}

// featureGateFlags is --feature-gates, if any gate is set.
func (o Options) featureGateFlags() []string {
	if len(o.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(o.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, o.FeatureGates[name]))
	}
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

func (o Options) runtimeConfigFlags() []string {
	if len(o.RuntimeConfig) == 0 {
		return nil
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(o.RuntimeConfig)) {
		pairs = append(pairs, name+"="+o.RuntimeConfig[name])
	}
	return []string{"--runtime-config=" + strings.Join(pairs, ",")}
}
