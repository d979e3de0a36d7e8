package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// await waits until a started cluster is ready. It starts the machines that are nodes, and
// imports images while the rest starts.
func (c *Cluster) await(ctx context.Context) error {
	if err := c.startMachines(ctx); err != nil {
		return err
	}
	images := make(chan error, 1)
	go func() {
		var failed []error
		for _, image := range c.record.Options.Images {
			failed = append(failed, c.ImportImage(ctx, image))
		}
		images <- errors.Join(failed...)
	}()
	err := errors.Join(c.WaitAPI(ctx), c.applyKinds(ctx), c.WaitReady(ctx))
	return errors.Join(err, <-images)
}

// WaitAPI waits until the API server is ready.
func (c *Cluster) WaitAPI(ctx context.Context) error {
	err := await(ctx, func() error {
		if err := c.checkSupervisor(ctx); err != nil {
			return err
		}
		return c.api.get(ctx, "/readyz", nil)
	})
	if err != nil {
		return fmt.Errorf("cluster: wait for the API server: %w", err)
	}
	return nil
}

// checkSupervisor returns a finalError if the supervisor has failed or ended.
func (c *Cluster) checkSupervisor(ctx context.Context) error {
	running, err := c.record.Supervisor.running()
	if err != nil {
		return err
	}
	if !running {
		return finalError{fmt.Errorf("the supervisor has ended, see %s", c.layout.log("supervisor"))}
	}
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if status.Error != "" {
		return finalError{errors.New(status.Error)}
	}
	return nil
}

// WaitReady waits until all nodes, or the named nodes, run and are Ready, with a heartbeat
// since their start: Kubernetes takes almost a minute to detect a stopped node.
func (c *Cluster) WaitReady(ctx context.Context, nodes ...string) error {
	if len(nodes) == 0 {
		nodes = c.Nodes
	}
	err := await(ctx, func() error {
		missing, err := c.notReady(ctx, nodes)
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("not Ready: %s", strings.Join(missing, ", "))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: wait for nodes: %w", err)
	}
	return nil
}

func (c *Cluster) notReady(ctx context.Context, nodes []string) ([]string, error) {
	started, err := c.nodesStarted(ctx)
	if err != nil {
		return nil, err
	}
	ready, err := c.api.lastReady(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range nodes {
		since, isOn := started[name]
		// The API's times are whole seconds.
		if heartbeat, ok := ready[name]; !ok || !isOn || heartbeat.Before(since.Truncate(time.Second)) {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// nodesStarted says when the nodes that are on were started.
func (c *Cluster) nodesStarted(ctx context.Context) (map[string]time.Time, error) {
	if c.OnMachines() {
		return c.machinesStarted(), nil
	}
	status, err := c.Status(ctx)
	started := make(map[string]time.Time)
	for name, on := range status.Nodes {
		started[name] = on.Started
	}
	return started, err
}

// applyKinds installs the CRDs of snapshots, group snapshots and ReferenceGrants.
func (c *Cluster) applyKinds(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(c.record.Options.Binaries, "crds"))
	return err
}

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.KubectlPath(), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	var failure strings.Builder
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if err != nil {
		return string(output), fmt.Errorf("cluster: kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(failure.String()))
	}
	return string(output), nil
}

// KubectlPath is the path of the cluster's kubectl.
func (c *Cluster) KubectlPath() string { return filepath.Join(c.record.Options.Binaries, "kubectl") }

// ImportImage imports the images of an archive (OCI or Docker) on every node.
func (c *Cluster) ImportImage(ctx context.Context, archive string) error {
	archive, err := filepath.Abs(archive)
	if err != nil {
		return err
	}
	failed := make(chan error, len(c.Nodes))
	for _, node := range c.Nodes {
		go func() { failed <- c.importOn(ctx, node, archive) }()
	}
	var all []error
	for range c.Nodes {
		all = append(all, <-failed)
	}
	return errors.Join(all...)
}

// importOn waits for the node's containerd if need be.
func (c *Cluster) importOn(ctx context.Context, node, archive string) error {
	if c.OnMachines() {
		return c.importOnMachine(ctx, node, archive)
	}
	socketDir := filepath.Join(c.NodeRoot(node), "run/containerd")
	if err := await(ctx, func() error { return accepts(ctx, socketDir) }); err != nil {
		return fmt.Errorf("cluster: containerd of %s: %w", node, err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.record.Options.Binaries, "ctr"),
		"--address", "/proc/self/cwd/containerd.sock", "--namespace", "k8s.io", "images", "import", "--local", archive)
	cmd.Dir = socketDir // a short name for the socket: addresses are of 108 bytes at most
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster: import %s on %s: %w: %s", archive, node, err, output)
	}
	return nil
}

// accepts checks that containerd listens.
func accepts(ctx context.Context, socketDir string) error {
	connection, err := dialSocket(ctx, filepath.Join(socketDir, "containerd.sock"))
	if err != nil {
		return err
	}
	return connection.Close()
}
