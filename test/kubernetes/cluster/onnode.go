package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// OnNode runs a program of the machine in all namespaces of a node, with the kubelet's
// view, and returns its output.
func (c *Cluster) OnNode(ctx context.Context, node string, args ...string) (string, error) {
	if c.OnMachines() {
		return c.onMachine(ctx, node, args)
	}
	pid, err := c.NodePID(ctx, node)
	if err != nil {
		return "", err
	}
	enter := []string{"--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"}
	cmd := exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
	cmd.Env = nodeEnvironment()
	var failure strings.Builder
	cmd.Stderr = &failure
	output, err := cmd.Output()
	if err != nil {
		return string(output), fmt.Errorf("cluster: on %s: %s: %w: %s", node, strings.Join(args, " "), err, strings.TrimSpace(failure.String()))
	}
	return string(output), nil
}

// NodePID is the pid, on the machine, of a node's first process.
func (c *Cluster) NodePID(ctx context.Context, node string) (int, error) {
	status, err := c.Status(ctx)
	if err != nil {
		return 0, err
	}
	on, ok := status.Nodes[node]
	if !ok {
		return 0, fmt.Errorf("cluster: node %s is not on", node)
	}
	// The pids of a process in all PID namespaces that it is in, from the
	// machine's to its own: see proc_pid_status(5).
	want := fmt.Sprintf("\t%d\t1", on.PID)
	parent := c.record.Supervisor.PID
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := statusFields(string(data))
		if strings.HasSuffix(fields["NSpid"], want) && fields["PPid"] == strconv.Itoa(parent) {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("cluster: no process of node %s is found", node)
}

func statusFields(status string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(status) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}
