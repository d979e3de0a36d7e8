package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

func reportFile(o options, p pass) string { return filepath.Join(o.report, p.name, "report.json") }

// runPass runs ginkgo, which runs the suite in several processes.
func runPass(ctx context.Context, o options, c *cluster.Cluster, p pass, environment []string) error {
	dir := filepath.Join(o.report, p.name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	definition := filepath.Join(dir, "driver.yaml")
	if err := define(p, o.file("local.yaml"), definition); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.binaries(), "ginkgo"), arguments(o, c, p, dir, definition)...)
	cmd.Env = append(os.Environ(), "PATH="+o.binaries()+":"+os.Getenv("PATH")) // kubectl
	cmd.Env = append(cmd.Env, environment...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// It would leave its processes behind: they are one group, and end together.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("pass %s failed: %w", p.name, err)
	}
	return nil
}

func arguments(o options, c *cluster.Cluster, p pass, dir, definition string) []string {
	args := []string{
		"--procs=" + strconv.Itoa(cmp.Or(p.procs, o.procs)), "--timeout=2h", "--no-color", "--silence-skips",
		"--label-filter=" + cmp.Or(o.labels, p.labels), "--focus=" + cmp.Or(o.focus, p.focus()),
		"--output-dir=" + dir, "--json-report=report.json", "--junit-report=junit.xml",
	}
	if skip := p.skipped(); skip != "" {
		args = append(args, "--skip="+skip)
	}
	return append(args, filepath.Join(o.binaries(), "e2e.test"), "--",
		"-driver="+definition, "-kubeconfig="+c.Kubeconfig,
		"-provider=local", "-allowed-not-ready-nodes=0", "-minStartupPods=0")
}
