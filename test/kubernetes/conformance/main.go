// Command conformance runs the Kubernetes project's own suite for CSI drivers
// ("external storage") against a driver on the test cluster, and says of every
// spec what became of it and why.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// options are the command line.
type options struct {
	binaries string // of `make kubernetes-binaries` and `make conformance-binaries`
	cluster  string // state directory of a cluster that runs; "" for an own one
	driver   string // definition file
	deploy   string // program that installs the driver
	report   string // directory for what is found
	labels   string // ginkgo's label filter
	focus    string // regular expression of names
	procs    int    // specs at a time
}

// defaultLabels select every spec that leaves the nodes alone and takes minutes
// at most, with the features that are always on.
const defaultLabels = "!Slow && !Serial && !Disruptive && !Flaky && Feature: isSubsetOf {" +
	"VolumeSnapshotDataSource, volumegroupsnapshot, VolumeAttributesClass, VolumeSourceXFS}"

func main() {
	var o options
	flag.StringVar(&o.binaries, "binaries", "../../bin/kubernetes", "directory of the programs")
	flag.StringVar(&o.cluster, "cluster", "", "state directory of a cluster that runs and has the driver; empty: start one, and run -deploy")
	flag.StringVar(&o.driver, "driver", "conformance/local.yaml", "definition of the driver")
	flag.StringVar(&o.deploy, "deploy", "conformance/deploy", "program that installs the driver, given KUBECONFIG and CLUSTER_DIR")
	flag.StringVar(&o.report, "report", "../../bin/conformance", "directory for the reports")
	flag.StringVar(&o.labels, "labels", defaultLabels, "ginkgo's label filter")
	flag.StringVar(&o.focus, "focus", "External.Storage", "regular expression: only specs whose names match")
	flag.IntVar(&o.procs, "procs", 6, "specs at a time; they mostly wait")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	for _, path := range []*string{&o.binaries, &o.driver, &o.deploy, &o.report} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.report, 0o755); err != nil {
		return err
	}
	if o.cluster != "" {
		c, err := cluster.Open(o.cluster)
		if err != nil {
			return err
		}
		return test(ctx, o, c)
	}
	c, err := cluster.Up(ctx, cluster.Options{
		Dir: filepath.Join(o.report, "cluster"), Binaries: o.binaries,
		Images: []string{filepath.Join(o.binaries, "images.tar")}, Attached: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Down()) }()
	if err := deploy(ctx, o, c); err != nil {
		return err
	}
	return test(ctx, o, c)
}

// deploy installs the driver: whatever the program does, the driver's class
// exists when it ends, and pods with its volumes can run.
func deploy(ctx context.Context, o options, c *cluster.Cluster) error {
	cmd := exec.CommandContext(ctx, o.deploy)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig, "CLUSTER_DIR="+c.Dir, "PATH="+o.binaries+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install the driver: %w", err)
	}
	return nil
}

// test runs the suite and writes the summary, also of one with failures.
func test(ctx context.Context, o options, c *cluster.Cluster) error {
	begun := time.Now()
	failed := suite(ctx, o, c)
	summary, err := summarise(filepath.Join(o.report, "report.json"))
	if err != nil {
		return errors.Join(failed, err)
	}
	path := filepath.Join(o.report, "summary.md")
	if err := os.WriteFile(path, []byte(summary.markdown()), 0o644); err != nil {
		return errors.Join(failed, err)
	}
	fmt.Printf("%s in %v; see %s\n", summary.counts(), time.Since(begun).Round(time.Second), path)
	if failed != nil {
		return fmt.Errorf("the suite failed: %w", failed)
	}
	return nil
}

// suite runs ginkgo, which runs the test binary several times at once.
func suite(ctx context.Context, o options, c *cluster.Cluster) error {
	args := []string{
		"--procs=" + strconv.Itoa(o.procs), "--timeout=6h", "--no-color", "--silence-skips",
		"--label-filter=" + o.labels, "--output-dir=" + o.report, "--json-report=report.json", "--junit-report=junit.xml",
	}
	if o.focus != "" {
		args = append(args, "--focus="+o.focus)
	}
	args = append(args, filepath.Join(o.binaries, "e2e.test"), "--",
		"-driver="+o.driver, "-repo-root="+filepath.Dir(o.driver), "-kubeconfig="+c.Kubeconfig,
		"-provider=local", "-allowed-not-ready-nodes=0", "-minStartupPods=0")
	cmd := exec.CommandContext(ctx, filepath.Join(o.binaries, "ginkgo"), args...)
	cmd.Env = append(os.Environ(), "PATH="+o.binaries+":"+os.Getenv("PATH")) // kubectl
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}
