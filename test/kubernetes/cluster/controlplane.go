package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// program is a part of the control plane with its command line.
type program struct {
	name string
	args []string
}

// controlPlane lists the programs of the control plane. All start at once, and each waits
// for those it needs. They use the default ports, because the network namespace is theirs.
func (r record) controlPlane(l layout) []program {
	programs := []program{
		{"etcd", r.etcdArgs(l)},
		{"kube-apiserver", r.apiServerArgs(l)},
		{"kube-controller-manager", r.controllerManagerArgs(l)},
		{"kube-scheduler", append([]string{"--config=" + l.config("scheduler.yaml")}, r.Options.featureGateFlags()...)},
		{"snapshot-controller", []string{
			"--kubeconfig=" + l.secret("snapshot-controller.kubeconfig"),
			"--enable-distributed-snapshotting", // node-local volumes: the sidecar of the volume's node acts
			"--kube-api-qps=1000", "--kube-api-burst=2000", "--worker-threads=50",
		}},
	}
	for i, p := range programs {
		programs[i].args = append(p.args, r.Options.Flags[p.name]...)
	}
	return programs
}

func (record) etcdArgs(l layout) []string {
	return []string{
		"--name=test", "--data-dir=" + l.etcd(), "--unsafe-no-fsync", "--log-level=warn",
		"--quota-backend-bytes=4294967296", // the storms of the benchmarks
	}
}

func (r record) apiServerArgs(l layout) []string {
	args := []string{
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=443",
		"--advertise-address=" + r.Plan.controlPlane().String(),
		"--service-cluster-ip-range=" + r.Plan.services().String(),
		"--tls-cert-file=" + l.secret("apiserver.crt"), "--tls-private-key-file=" + l.secret("apiserver.key"),
		"--client-ca-file=" + l.secret("ca.crt"), "--token-auth-file=" + l.secret("tokens.csv"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + l.secret("service-accounts.key"),
		"--service-account-signing-key-file=" + l.secret("service-accounts.key"),
		"--kubelet-client-certificate=" + l.secret("kubelet-client.crt"),
		"--kubelet-client-key=" + l.secret("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP", // no name server knows the nodes' names
		"--allow-privileged=true",
	}
	return append(append(args, r.Options.featureGateFlags()...), r.Options.runtimeConfigFlags()...)
}

func (r record) controllerManagerArgs(l layout) []string {
	kubeconfig := l.secret("kube-controller-manager.kubeconfig")
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--service-account-private-key-file=" + l.secret("service-accounts.key"),
		"--root-ca-file=" + l.secret("ca.crt"),
		"--use-service-account-credentials=true",
		"--leader-elect=false",
		// At its default of 20 requests a second this binds five claims a second,
		// and a storm would measure only that.
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	}
	return append(args, r.Options.featureGateFlags()...)
}

// writeControlPlaneConfig makes the files that the command lines name.
func (r record) writeControlPlaneConfig(l layout) error {
	if err := os.MkdirAll(l.etcd(), 0o700); err != nil {
		return err
	}
	return writeConfig(l.config("scheduler.yaml"), map[string]any{
		"apiVersion":     "kubescheduler.config.k8s.io/v1",
		"kind":           "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{
			"kubeconfig": l.secret("kube-scheduler.kubeconfig"), "qps": 1000, "burst": 2000,
		},
	})
}

// startControlPlane runs the programs.
func (r record) startControlPlane(l layout, reaper *reaper) ([]*service, error) {
	if err := r.writeControlPlaneConfig(l); err != nil {
		return nil, err
	}
	var services []*service
	for _, p := range r.controlPlane(l) {
		s, err := newService(reaper, l.log(p.name), p.name, filepath.Join(r.Options.Binaries, p.name), p.args...)
		if err != nil {
			return nil, err
		}
		if err := s.start(); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		services = append(services, s)
	}
	return services, nil
}
