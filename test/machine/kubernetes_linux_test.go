//go:build machine

package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestKubernetes_shortRun runs the short end-to-end tests of test/kubernetes on a machine:
// the control plane is here, and its only node is a Debian with systemd, the newest kernel
// and control groups of version 2. To what runs without a machine it adds the growth of a
// mounted ext4 and a power cut.
func TestKubernetes_shortRun(t *testing.T) {
	built, err := filepath.Abs(os.Getenv("HOLDFAST_TEST_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(t.TempDir(), "programs")
	makePrograms(t, built, disk)
	n := &node{lab: newLabWith(t, "trixie", "kubernetes", Options{Memory: 4096, Programs: disk})}
	command := exec.CommandContext(t.Context(), filepath.Join(built, "kubernetes/holdfast-e2e.test"),
		"-test.run", "^TestHoldfast$", "-test.short", "-test.v", "-test.parallel", "2", "-test.timeout", "3h")
	command.Dir = "../kubernetes/e2e"
	command.Env = append(os.Environ(), "HOLDFAST_MACHINES="+n.serve())
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		t.Fatalf("the end-to-end tests: %v", err)
	}
}

// makePrograms makes the disk with the programs of a node and the archives of images.
func makePrograms(t *testing.T, built, disk string) {
	t.Helper()
	tree := t.TempDir()
	for _, dir := range []string{"bin", "images"} {
		if err := os.Mkdir(filepath.Join(tree, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kubernetes := func(name string) string { return filepath.Join(built, "kubernetes", name) }
	programs := []string{"-a", "--reflink=auto", kubernetes("kube"), kubernetes("kubelet"), kubernetes("containerd"),
		kubernetes("containerd-shim-runc-v2"), kubernetes("ctr"), filepath.Join(tree, "bin")}
	archives := []string{"--reflink=auto", kubernetes("images.tar"), filepath.Join(built, "holdfast-image.tar"), filepath.Join(tree, "images")}
	err := errors.Join(
		output(t.Context(), "cp", programs...),
		output(t.Context(), "cp", archives...),
		output(t.Context(), "mkfs.ext4", "-q", "-L", "kubernetes", "-d", tree, disk, "1536M"),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// node answers the requests of package cluster of test/kubernetes, which has the protocol.
type node struct {
	*lab
	// mu is held for the power, and shared by programs that run.
	mu sync.RWMutex
	// installed says that the machine has what makes it a node.
	installed bool
}

// description is that package's Machine.
type description struct {
	Network
	Address, Gateway    string
	Containerd, Kubelet []string
	Files               map[string][]byte
}

// serve listens on a socket until the test ends, and returns its path.
func (n *node) serve() string {
	n.t.Helper()
	path := filepath.Join(n.options.Directory, "node")
	listener, err := new(net.ListenConfig).Listen(n.t.Context(), "unix", path)
	n.must(err)
	mux := http.NewServeMux()
	mux.Handle("POST /nodes/node-1/start", answer(n.turnOn))
	mux.Handle("POST /nodes/node-1/stop", answer(func(context.Context, struct{}) (struct{}, error) { return struct{}{}, n.turnOff() }))
	mux.Handle("POST /nodes/node-1/run", answer(n.runHere))
	server := &http.Server{Handler: mux} //nolint:gosec // its client is a test
	go func() { _ = server.Serve(listener) }()
	n.t.Cleanup(func() { _ = server.Close() })
	return path
}

// answer makes a handler of a function: its error is the answer, or its result.
func answer[Request, Result any](do func(context.Context, Request) (Result, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil && r.ContentLength != 0 {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		result, err := do(ctx, request)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(result) // the client may be gone
	}
}

// turnOn boots the machine; the first time, it installs the node.
func (n *node) turnOn(ctx context.Context, d description) (struct{}, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.Connect(d.Network)
	if err := errors.Join(n.Boot(ctx), n.Up(ctx)); err != nil {
		return struct{}{}, err
	}
	if n.installed {
		return struct{}{}, nil
	}
	n.installed = true
	return struct{}{}, n.install(ctx, d)
}

// install writes the files and units of a node and starts them. A power cut must not take
// them away.
func (n *node) install(ctx context.Context, d description) error {
	for path, content := range nodeFiles(d) {
		if _, err := n.Shell(ctx, "mkdir -p "+filepath.Dir(path)); err != nil {
			return err
		}
		if err := n.Put(ctx, path, content); err != nil {
			return err
		}
	}
	_, err := n.Shell(ctx, `mkdir -p /opt/kubernetes
		echo 'LABEL=kubernetes /opt/kubernetes ext4 ro 0 0' >>/etc/fstab
		systemctl daemon-reload
		systemctl enable -q node-network containerd kubelet
		systemctl start node-network containerd kubelet
		sync`)
	return err
}

// nodeFiles are those that make a machine a node, by their paths.
func nodeFiles(d description) map[string][]byte {
	files := map[string][]byte{
		"/etc/resolv.conf": nil, // no name server can be reached
		"/etc/systemd/system/node-network.service": fmt.Appendf(nil, `[Unit]
Description=Network of the node
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=ip address add %s dev eth0
ExecStart=ip link set eth0 up
ExecStart=ip route add default via %s
ExecStart=sysctl -q net.ipv4.ip_forward=1
[Install]
WantedBy=multi-user.target
`, d.Address, d.Gateway),
		"/etc/systemd/system/containerd.service": nodeUnit("containerd", d.Containerd, "node-network.service",
			"Type=notify\nDelegate=yes\nKillMode=process\nTasksMax=infinity\nOOMScoreAdjust=-999"),
		"/etc/systemd/system/kubelet.service": nodeUnit("kubelet", d.Kubelet, "containerd.service", "KillMode=process\nOOMScoreAdjust=-999"),
	}
	for path, content := range d.Files {
		files[filepath.Join("/etc", path)] = content
	}
	return files
}

func nodeUnit(program string, arguments []string, after, more string) []byte {
	return fmt.Appendf(nil, `[Unit]
Description=%[1]s
RequiresMountsFor=/opt/kubernetes
Requires=%[3]s
After=%[3]s
[Service]
Environment=PATH=/opt/kubernetes/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin
ExecStart=/opt/kubernetes/bin/%[1]s %[2]s
Restart=always
RestartSec=5
%[4]s
[Install]
WantedBy=multi-user.target
`, program, strings.Join(arguments, " "), after, more)
}

func (n *node) turnOff() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	loss, err := n.CutPower(n.random, 0.5)
	n.t.Logf("power cut: of the unflushed writes, %d kept, %d torn, %d lost", loss.Kept, loss.Torn, loss.Lost)
	return err
}

// runHere runs a program, and returns its standard output if it succeeds.
func (n *node) runHere(ctx context.Context, command []string) (string, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	result, err := n.Run(ctx, command...)
	if err == nil && result.Code != 0 {
		err = fmt.Errorf("on the machine, %q: exit code %d: %s", command, result.Code, result.Stderr)
	}
	return result.Stdout, err
}
