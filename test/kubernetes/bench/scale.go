package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

const (
	// scaleDriver is the driver whose volumes are on the simulated nodes.
	scaleDriver = "scale.simulated.holdfast.dev"
	// scaleNodeKey is its topology key, which package csidriver defines.
	scaleNodeKey = "node"
	// nodeLabel has the node of a claim or volume as its value.
	nodeLabel = "holdfast.dev/node"
)

func scaleNode(i int) string { return fmt.Sprintf("scale-%05d", i) }

// design is one way to run the controllers of all nodes, with a number of nodes.
type design struct {
	name  string
	nodes int
	// flags are those of test/scale, and command is the command line of another
	// provisioner. Without both, each node receives its own objects only.
	flags, command []string
}

func (d design) String() string { return fmt.Sprintf("%s, %d nodes", d.name, d.nodes) }

// coordinated reports whether nodes receive their own objects only, so that an elected
// process coordinates them.
func (d design) coordinated() bool { return d.flags == nil && d.command == nil }

// designs are those to measure. With few nodes all are compared: processes that have the
// objects of all nodes need the memory for them on each node.
func (s settings) designs() []design {
	all := []design{{name: "Holdfast", nodes: s.nodes}}
	if s.few == 0 {
		return all
	}
	all = append(all, design{name: "Holdfast", nodes: s.few},
		design{name: "each node watches everything", nodes: s.few, flags: []string{"-node-objects-only=false"}})
	for _, line := range s.alternatives {
		all = append(all, design{name: s.alternative, nodes: s.few, command: strings.Fields(line)})
	}
	return all
}

// measureScale measures clusters of many nodes: what a restart of all nodes and the life
// of a claim cost the API server, and the memory of one node. It skips designs that
// the results have already, and writes a page's table after each of the others.
func measureScale(ctx context.Context, s settings, page string) error {
	results, err := readScaleResults(s)
	if err != nil {
		return err
	}
	var failed []error
	for _, d := range s.designs() {
		if results.has(d) {
			say("%s: measured before", d)
			continue
		}
		load, err := loadAverage()
		if err != nil {
			return err
		}
		say("%s: begins with a load average of %s", d, load)
		result, err := s.scaleOf(ctx, d)
		if err != nil {
			say("%s: %v", d, err)
			failed = append(failed, fmt.Errorf("%s: %w", d, err))
			if ctx.Err() != nil {
				break
			}
			continue // the others tell the most by themselves
		}
		results.add(d, load, scaleCells(s, d, result))
		if err := results.write(s, page); err != nil {
			return err
		}
	}
	fmt.Print(results.table(s))
	return errors.Join(failed...)
}

// scale is a cluster of many nodes that exist as objects and as controllers only.
type scale struct {
	*bench
	design     design
	meter      *meter
	kubeconfig string   // through the meter
	etcd       string   // socket
	drivers    *process // of the alternative; nil without one
}

// scaleOf measures one design on a new cluster.
func (s settings) scaleOf(ctx context.Context, d design) (result scaleResult, err error) {
	dir, err := os.MkdirTemp(s.scratch, "holdfast-scale-")
	if err != nil {
		return result, err
	}
	sc := &scale{bench: &bench{s: s, dir: dir}, design: d, etcd: filepath.Join(dir, "etcd.sock")}
	if sc.cluster, err = cluster.Up(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Binaries: s.binaries, Attached: true, NoNodes: true,
		Flags: map[string][]string{
			// The nodes have no kubelet; their objects stay as they are.
			"kube-controller-manager": {"--controllers=*,-node-lifecycle-controller,-node-ipam-controller"},
			"etcd": {
				"--listen-client-urls=http://127.0.0.1:2379,unix://" + sc.etcd, "--advertise-client-urls=http://127.0.0.1:2379",
			},
		},
	}); err != nil {
		return result, err
	}
	defer func() {
		down := sc.cluster.Down()
		if err == nil && down == nil {
			down = os.RemoveAll(dir)
		} else {
			say("logs and state are left in %s", dir)
		}
		err = errors.Join(err, down)
	}()
	if err := sc.connect(ctx); err != nil {
		return result, err
	}
	metering, stop := context.WithCancel(ctx)
	defer stop()
	if sc.meter, sc.kubeconfig, err = newMeter(metering, sc.cluster.Kubeconfig); err != nil {
		return result, err
	}
	if err := sc.prepare(ctx); err != nil {
		return result, err
	}
	return sc.measure(ctx)
}

// loadAverage returns the number of tasks that ran or were ready to run in the last
// minute, without those of the benchmark if it has not begun.
func loadAverage() (string, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first, nil
}
