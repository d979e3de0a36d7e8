// Command bench measures Holdfast on the test cluster: storms of claims and of
// attachments, memory with few and with many objects, requests to the API
// server, and how long a pod waits for its volume. Like test/bench it can measure a
// named alternative in the same run (-alternative).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// settings are the command line.
type settings struct {
	binaries   string // of `make kubernetes-binaries`
	holdfast   string // the binary to measure
	simulated  string // test/simulated
	image      string // archive of the driver's image
	repository string // its name
	tag        string
	helm       string
	chart      string
	scratch    string
	only       string
	claims     int
	objects    int
	pods       int
	idleTime   time.Duration
	latency    time.Duration
	// alternatives are the command lines of processes that do the same work. Each gets
	// --csi-address and --kubeconfig.
	alternatives list
	alternative  string // their name in the table
	scaleSettings
}

// scaleSettings are for the group scale.
type scaleSettings struct {
	scale            string // the program of many nodes
	nodes, processes int    // how many nodes there are, in how many processes
	// few is the number of nodes with which the designs are compared; 0 compares none.
	few        int
	unlabelled int    // volumes without the label of their node
	ready      string // logged by the alternative when its caches are filled
	results    string // file of what was measured in earlier runs
	profiles   string // directory of CPU profiles
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, "; ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, report, err := parse()
	if err != nil {
		return err
	}
	if s.only == "scale" {
		return measureScale(ctx, s, report)
	}
	rows, err := measure(ctx, s)
	if err != nil {
		return err
	}
	table := render(rows)
	fmt.Print(table)
	if report == "" {
		return nil
	}
	return writeReport(report, table, s)
}

func parse() (s settings, report string, err error) {
	flag.StringVar(&s.binaries, "binaries", "../../bin/kubernetes", "directory of the cluster's programs")
	flag.StringVar(&s.holdfast, "holdfast", "../../bin/holdfast", "the binary to measure")
	flag.StringVar(&s.simulated, "simulated", "../../bin/kubernetes/simulated", "the simulated driver")
	flag.StringVar(&s.image, "image", "../../bin/holdfast-image.tar", "archive of the driver's image")
	flag.StringVar(&s.repository, "image-repository", "holdfast.dev/holdfast", "the image's name")
	flag.StringVar(&s.tag, "image-tag", "", "the image's tag")
	flag.StringVar(&s.helm, "helm", "../../bin/helm", "the program helm")
	flag.StringVar(&s.chart, "chart", "../../deploy/helm/holdfast", "the chart")
	flag.StringVar(&s.scratch, "scratch", "/var/tmp", "where clusters are made and removed again")
	flag.StringVar(&s.only, "only", "", "measure only these groups: size, storm, pods, objects; scale is measured only by its name")
	flag.IntVar(&s.claims, "claims", 1000, "claims and attachments of a storm")
	flag.IntVar(&s.objects, "objects", 10000, "objects of each kind when memory is measured")
	flag.IntVar(&s.pods, "pods", 20, "pods that are started one after another; the median counts")
	flag.DurationVar(&s.idleTime, "idle", time.Minute, "how long processes are idle before their memory is read")
	flag.DurationVar(&s.latency, "latency", 0, "how long the simulated driver takes for a call")
	flag.Var(&s.alternatives, "alternative", "`COMMAND LINE` of a process to measure in the same run; repeated, all together do the work")
	flag.StringVar(&s.alternative, "alternative-name", "the alternative", "the name of those processes in the table")
	s.scaleFlags()
	flag.StringVar(&report, "write", "", "also write the table to this Markdown file, between its markers")
	flag.Parse()
	s.unlabelled = min(s.unlabelled, s.objects)
	if os.Geteuid() != 0 {
		return s, "", errors.New("the cluster needs root: run make bench-kubernetes")
	}
	for _, path := range []*string{&s.binaries, &s.holdfast, &s.simulated, &s.image, &s.helm, &s.chart, &s.scratch, &s.scale} {
		if *path, err = filepath.Abs(*path); err != nil {
			return s, "", err
		}
	}
	return s, report, nil
}

// scaleFlags declares the flags of the group scale.
func (s *scaleSettings) scaleFlags() {
	flag.StringVar(&s.scale, "scale", "../../bin/kubernetes/scale", "the program of many nodes, test/scale")
	flag.IntVar(&s.nodes, "nodes", 1000, "nodes of the group scale")
	flag.IntVar(&s.processes, "processes", 4, "processes that run the controllers of these nodes")
	flag.IntVar(&s.few, "few", 0, "also measure with `N` nodes: Holdfast, nodes that watch everything, and the alternative, one process each")
	flag.IntVar(&s.unlabelled, "unlabelled", 1000, "volumes of the group scale that lack the label of their node at first")
	flag.StringVar(&s.ready, "alternative-ready", "Started provisioner controller", "`TEXT` in its log when the alternative's caches are filled")
	flag.StringVar(&s.results, "results", "", "`FILE` for what the group scale has measured; another run skips that")
	flag.StringVar(&s.profiles, "profiles", "", "write CPU profiles of the control plane in a storm of the group scale to this `DIR`")
}

func measure(ctx context.Context, s settings) ([]row, error) {
	groups := []struct {
		name    string
		measure func(context.Context, settings) ([]row, error)
	}{
		{"size", measureSize},
		{"storm", measureStorm},
		{"pods", measurePods},
		{"objects", measureObjects},
	}
	var rows []row
	only := strings.FieldsFunc(s.only, func(r rune) bool { return r == ',' })
	for _, group := range groups {
		if len(only) > 0 && !slices.Contains(only, group.name) {
			continue
		}
		say("measuring %s", group.name)
		measured, err := group.measure(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", group.name, err)
		}
		rows = append(rows, measured...)
	}
	return rows, nil
}

// say reports progress.
func say(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "bench: %s\n", fmt.Sprintf(format, arguments...))
}

// measureSize measures the binary as it is shipped.
func measureSize(_ context.Context, s settings) ([]row, error) {
	info, err := os.Stat(s.holdfast)
	if err != nil {
		return nil, err
	}
	r := row{work: "binary, stripped", holdfast: megabytes(info.Size()), alternative: "eleven programs of upstream*", measured: "454 MB", aim: "≤ 45 MB"}
	var other int64
	for _, command := range s.alternatives {
		info, err := os.Stat(strings.Fields(command)[0])
		if err != nil {
			return nil, err
		}
		other += info.Size()
	}
	if other > 0 {
		r.alternative, r.measured = s.alternative, megabytes(other)
		r.ratio = ratio(float64(info.Size()), float64(other))
	}
	return []row{r}, nil
}
