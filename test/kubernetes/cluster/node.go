package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// nodeEnvironment is that of everything on a node: the shim is found in the
// cluster's programs, runc in the machine's.
func nodeEnvironment() []string {
	return []string{
		"PATH=" + binariesInNode + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
	}
}

// EnterNode is the first half of a node's first process: it waits until it has
// been put into its control group, makes that the root of a control group
// namespace, and runs itself again with args, for which RunNode is called. Only
// so do all threads enter the namespace. It returns only an error.
func EnterNode(args []string) error {
	if _, err := awaitGoAhead(); err != nil {
		return err
	}
	path, err := self()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cluster: make a control group namespace: %w", err)
	}
	return unix.Exec(path, append([]string{path}, args...), os.Environ())
}

// RunNode is a node's first process: it makes the node's root directory its
// own, and runs containerd and the kubelet. It returns only an error.
func RunNode(dir, name string, index int) error {
	l := layout(dir)
	r, err := readRecord(l)
	if err != nil {
		return err
	}
	// Logs are outside of the node's root: opened first.
	services, err := nodeServices(l, r, name, newReaper())
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("cluster: name the node: %w", err)
	}
	if err := enterRoot(l, name, r.Options.Binaries); err != nil {
		return err
	}
	if err := leaveTopControlGroup(); err != nil {
		return err
	}
	if err := r.makeNodeNetwork(index); err != nil {
		return err
	}
	for _, s := range services {
		if err := s.start(); err != nil {
			return fmt.Errorf("cluster: %w", err)
		}
	}
	slog.Info("the node runs", "node", name)
	return serveNode(services)
}

// nodeServices are the programs of a node in the order of their start.
func nodeServices(l layout, r record, name string, reaper *reaper) ([]*service, error) {
	program := func(base string, args ...string) (*service, error) {
		args = append(args, r.Options.Flags[base]...)
		return newService(reaper, l.log(name+"-"+base), base, filepath.Join(binariesInNode, base), args...)
	}
	containerd, err := program("containerd", containerdArgs()...)
	if err != nil {
		return nil, err
	}
	kubelet, err := program("kubelet", r.kubeletArgs(name)...)
	if err != nil {
		return nil, err
	}
	return []*service{containerd, kubelet}, nil
}

func containerdArgs() []string { return []string{"--config=/etc/containerd/cluster.toml"} }

func (r record) kubeletArgs(name string) []string {
	return []string{
		"--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--hostname-override=" + name, "--node-ip=" + nodeAddress(r, name), "--node-labels=" + r.Options.nodeLabels(name),
	}
}

// serveNode answers on the node's own socket, which is in its /run.
func serveNode(services []*service) error {
	listener, err := listenControl("/run/" + nodeSocket)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /programs/{program}/{verb}", answer(func(r *http.Request) (any, error) {
		return nil, control(services, r.PathValue("program"), r.PathValue("verb"))
	}))
	serveControl(listener, mux)
	return fmt.Errorf("cluster: the node's control socket is closed")
}

// nodeSocket is the name of a node's control socket in its /run.
const nodeSocket = "cluster-node.sock"

// leaveTopControlGroup moves this process out of the top of its namespace where
// control groups are version 2, in which a group with children that have
// controllers has no processes.
func leaveTopControlGroup() error {
	all, err := hierarchies()
	if err != nil || !all[0].unified() {
		return err
	}
	group := filepath.Join(cgroupRoot, "init")
	if err := os.MkdirAll(group, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cluster: join control group %s: %w", group, err)
	}
	enableControllers(cgroupRoot)
	return nil
}
