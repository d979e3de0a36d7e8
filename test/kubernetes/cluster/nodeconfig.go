package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pauseImage is the image of the container that keeps a pod's namespaces;
// test/utils/image/manifest.go of k/k names it and package images builds it.
const pauseImage = "registry.k8s.io/pause:3.10.2"

func nodeAddress(r record, name string) string {
	return r.Plan.node(slices.Index(r.Options.nodeNames(), name) + 1).String()
}

// nodeLabels put a node into its zone: labels that the admission plugin
// NodeRestriction lets a kubelet set.
func (o Options) nodeLabels(name string) string {
	region, zone := "test", "test-"+strings.TrimPrefix(name, "node-")
	if o.Zone != "" {
		region, zone = o.Zone[:len(o.Zone)-1], o.Zone
	}
	return "topology.kubernetes.io/region=" + region + ",topology.kubernetes.io/zone=" + zone
}

// writeNodeConfig writes the configuration of a node's programs to its /etc.
func (r record) writeNodeConfig(l layout, name string, index int) error {
	files, err := r.nodeConfig(l, name, index)
	if err != nil {
		return err
	}
	for path, content := range files {
		if err := writeFile(filepath.Join(l.overlay(name, "etc"), path), content); err != nil {
			return err
		}
	}
	return nil
}

// nodeConfig is the configuration of a node's programs, by its path in /etc.
func (r record) nodeConfig(l layout, name string, index int) (map[string][]byte, error) {
	kubelet, err := toYAML(r.kubeletConfig())
	if err != nil {
		return nil, err
	}
	network, err := json.Marshal(r.networkConfig(index))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"kubernetes/kubelet.yaml":       kubelet,
		"cni/net.d/10-cluster.conflist": network,
		"containerd/cluster.toml":       r.containerdConfig(),
	}
	for path, secret := range map[string]string{
		"kubernetes/kubelet.kubeconfig": "node-" + name + ".kubeconfig", "kubernetes/ca.crt": "ca.crt",
	} {
		if files[path], err = os.ReadFile(l.secret(secret)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// kubeletConfig is a node's KubeletConfiguration.
func (r record) kubeletConfig() map[string]any {
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1",
		"kind":       "KubeletConfiguration",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": true},
			"x509":      map[string]any{"clientCAFile": "/etc/kubernetes/ca.crt"},
		},
		"authorization":            map[string]any{"mode": "Webhook"},
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"failSwapOn":               false,
		// Nodes may share the machine's disk: its fill level must neither evict pods nor
		// remove images, because there is no registry to pull them from.
		"evictionHard":                map[string]any{"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"imageMaximumGCAge": "0s",
		// Its default is below /usr, which is the machine's.
		"volumePluginDir": "/var/lib/kubelet/volumeplugins",
		// No packet filter is in use.
		"makeIPTablesUtilChains": false,
		"maxPods":                300,
		"kubeAPIQPS":             500, "kubeAPIBurst": 1000,
	}
	if r.Options.Machines == "" {
		maps.Copy(config, map[string]any{
			// Without a service manager, and on machines that still have version 1.
			"cgroupDriver": "cgroupfs", "failCgroupV1": false,
			"cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
			// Root of a container may not lower it.
			"oomScoreAdj": 0,
		})
	}
	if len(r.Options.FeatureGates) > 0 {
		config["featureGates"] = r.Options.FeatureGates
	}
	maps.Copy(config, r.Options.Kubelet)
	return config
}

// networkConfig gives each pod an address of the node's own network. The
// node's routes do the rest.
func (r record) networkConfig(index int) map[string]any {
	return map[string]any{
		"cniVersion": "1.0.0",
		"name":       "cluster",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": "pods", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni", // gone with a restart, as the pods are
				"ranges": []any{[]any{map[string]any{"subnet": r.Plan.pods(index).String()}}},
			},
		}},
	}
}

func (r record) containerdConfig() []byte {
	config := fmt.Appendf(nil, `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.nri.v1.nri"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "%s"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
`, pauseImage)
	if r.Options.Machines != "" {
		return append(config, `
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
`...)
	}
	return append(config, `
[plugins.'io.containerd.cri.v1.runtime']
# Root of a container may lower neither, and has no AppArmor of its own.
restrict_oom_score_adj = true
disable_apparmor = true
`...)
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
