// Command conformance runs the Kubernetes project's own suite for CSI drivers
// ("external storage") against the backend local, installed from the chart on the test
// cluster, and reports the outcome of every spec with its reason.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
	"github.com/holdfast-csi/holdfast/test/kubernetes/deployment"
)

// options are the command line.
type options struct {
	root    string // of the repository
	cluster string // state directory of a cluster that runs; "" for an own one
	image   string // archive; "" is what `make image` writes
	report  string // directory for the results
	passes  string
	labels  string // ginkgo's label filter, instead of the passes'
	focus   string // regular expression of names, instead of the passes'
	procs   int    // specs at a time
	write   string // documentation to write the results into
	again   bool   // only summarise the reports that there are
}

func (o options) binaries() string { return filepath.Join(o.root, "bin/kubernetes") }

// file returns the path of a file next to this executable.
func (o options) file(name string) string {
	return filepath.Join(o.root, "test/kubernetes/conformance", name)
}

// partial reports whether specs are selected by flags.
func (o options) partial() bool { return o.passes != "" || o.labels != "" || o.focus != "" }

func main() {
	var o options
	flag.StringVar(&o.root, "root", "../..", "directory of this repository")
	flag.StringVar(&o.cluster, "cluster", "", "state directory of a cluster that runs and has the driver; empty: one for this run")
	flag.StringVar(&o.image, "image", "", "archive of the image; empty: bin/holdfast-image.tar")
	flag.StringVar(&o.report, "report", "../../bin/conformance", "directory for the reports")
	flag.StringVar(&o.passes, "passes", "", "only these, separated by commas")
	flag.StringVar(&o.labels, "labels", "", "ginkgo's label filter, instead of the passes' own")
	flag.StringVar(&o.focus, "focus", "", "regular expression: only specs whose names match")
	flag.IntVar(&o.procs, "procs", 8, "specs at a time; they mostly wait")
	flag.StringVar(&o.write, "write", "", "file between whose markers the results are written, if all passes ran")
	flag.BoolVar(&o.again, "summarise", false, "run nothing: summarise the reports of earlier runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	for _, path := range []*string{&o.root, &o.report} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
	}
	if o.image == "" {
		o.image = filepath.Join(o.root, "bin/holdfast-image.tar")
	}
	chosen, err := choose(passes(), o.passes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.report, 0o755); err != nil {
		return err
	}
	switch {
	case o.again:
		return writeSummary(o, chosen)
	case o.cluster != "":
		c, err := cluster.Open(o.cluster)
		if err != nil {
			return err
		}
		return test(ctx, o, c, chosen)
	}
	return withCluster(ctx, o, func(c *cluster.Cluster) error { return test(ctx, o, c, chosen) })
}

// withCluster runs use with a cluster that has the driver. The cluster ends with this
// process, also if it crashes.
func withCluster(ctx context.Context, o options, use func(*cluster.Cluster) error) (err error) {
	image, err := deployment.ReadImage(o.image)
	if err != nil {
		return err
	}
	c, err := cluster.Up(ctx, cluster.Options{
		Dir: filepath.Join(o.report, "cluster"), Binaries: o.binaries(),
		Images: []string{filepath.Join(o.binaries(), "images.tar")}, Attached: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Down()) }()
	if _, err := deployment.Install(ctx, c, deployment.Options{Root: o.root, Image: image, Values: values()}); err != nil {
		return err
	}
	return use(c)
}

// values are the chart's values: the classes of the passes, and a pool on a filesystem
// that clones files, without which a raw block volume in use cannot be copied.
func values() []string {
	return []string{
		"local.pool.image.file=/var/lib/holdfast/pool.img", "local.pool.image.size=8Gi", "local.pool.overcommit=8",
		"storageClasses[0].name=holdfast-local",
		"storageClasses[1].name=holdfast-local-btrfs", `storageClasses[1].parameters.csi\.storage\.k8s\.io/fstype=btrfs`,
		"storageClasses[2].name=holdfast-local-immediate", "storageClasses[2].volumeBindingMode=Immediate",
		"storageClasses[3].name=holdfast-local-one-node",
		`storageClasses[3].allowedTopologies[0].matchLabelExpressions[0].key=topology.local.holdfast.dev/node`,
		"storageClasses[3].allowedTopologies[0].matchLabelExpressions[0].values[0]=node-1",
		"volumeAttributesClasses[0].name=holdfast-local-thick", "volumeAttributesClasses[0].parameters.provisioning=thick",
	}
}

// test runs the passes and writes their results, also after failures.
func test(ctx context.Context, o options, c *cluster.Cluster, chosen []pass) error {
	if _, err := c.Kubectl(ctx, "apply", "-f", o.file("corrections.yaml")); err != nil {
		return err
	}
	environment, err := openGateway(ctx, c, o.report)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(filepath.Join(o.report, sshKey)) }()
	var failures []error
	for _, p := range chosen {
		failures = append(failures, runPass(ctx, o, c, p, environment))
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
	}
	return errors.Join(append(failures, writeSummary(o, chosen))...)
}

// writeSummary summarises the reports of the passes. It writes the documentation only
// from complete reports of all passes, and only if no spec failed.
func writeSummary(o options, chosen []pass) error {
	var results []result
	for _, p := range chosen {
		r, err := readResult(p, reportFile(o, p))
		if err != nil {
			return err
		}
		results = append(results, r)
		fmt.Printf("pass %s: %s in %v\n", p.name, r.counts(), r.took.Round(time.Second))
	}
	s := summarise(results)
	path := filepath.Join(o.report, "summary.md")
	if err := os.WriteFile(path, []byte(s.markdown()), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s; see %s\n", s.counts(), path)
	if o.write == "" || o.partial() || len(s.of(failed)) > 0 {
		return nil
	}
	if err := s.complete(); err != nil {
		return err
	}
	return replaceBetweenMarkers(o.write, s.markdown())
}
