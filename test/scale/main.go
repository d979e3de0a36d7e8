// Command scale runs the controllers of many nodes in one process, each with its own
// connections to the API server and its own simulated driver whose volumes are on that
// node. With it, `make bench-scale` measures a cluster of a thousand nodes on one machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// readyPoll is the interval at which the caches of the nodes are inspected.
const readyPoll = 100 * time.Millisecond

// settings are the command line.
type settings struct {
	kubeconfig, driver, namespace string
	first, nodes                  int
	latency                       time.Duration
	ownOnly, elect                bool
	capacity                      sizes
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := parse()
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	var all []*kube.Controllers
	for i := range s.nodes {
		one, err := s.node(fmt.Sprintf("scale-%05d", s.first+i))
		if err != nil {
			return err
		}
		all = append(all, one)
		group.Go(func() error { return one.Run(working) })
	}
	group.Go(func() error { return report(working, all) })
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

func parse() (s settings, err error) {
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server")
	flag.StringVar(&s.driver, "driver", "scale.simulated.holdfast.dev", "CSI plugin `NAME`")
	flag.StringVar(&s.namespace, "namespace", "bench", "`NAMESPACE` of the processes' own objects")
	flag.IntVar(&s.first, "first", 0, "number of the first node")
	flag.IntVar(&s.nodes, "nodes", 1, "number of nodes")
	flag.DurationVar(&s.latency, "latency", 0, "how long a driver takes to create or delete a volume")
	flag.BoolVar(&s.ownOnly, "node-objects-only", true, "receive the objects of the own node only, as --node-objects-only")
	flag.Var(&s.capacity, "capacity", "`SIZES` of the nodes' storage, separated by commas, of which each node has the next one; 1Ti if it is not given")
	flag.BoolVar(&s.elect, "elect", true, "take part in the election of the process that coordinates all nodes")
	flag.Parse()
	if s.kubeconfig == "" || s.nodes < 1 {
		return s, errors.New("-kubeconfig is not given, or -nodes is not above zero")
	}
	return s, nil
}

// node makes the controllers of one node, as the process of node deployment has them.
func (s settings) node(name string) (*kube.Controllers, error) {
	clients, err := cluster.Connect(s.kubeconfig, "holdfast/scale")
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("node", name)
	o := kube.Options{
		Clients: clients, Node: name, Namespace: s.namespace, Pod: name, CSI: s.connect(name),
		Elect: s.elect, Lease: lease.Options{Identity: name}, Logger: logger, Registerer: prometheus.NewRegistry(),
	}
	o.Tuning.Bind(pflag.NewFlagSet("", pflag.PanicOnError)) // sets the defaults
	o.Limits.Bind(pflag.NewFlagSet("", pflag.PanicOnError))
	o.Tuning.StrictTopology, o.Tuning.Capacity = true, true // as the chart of local sets them
	o.Tuning.NodeObjectsOnly = s.ownOnly
	return kube.New(o)
}

// connect makes a driver whose volumes are on one node, and a client that calls it.
func (s settings) connect(node string) *csiclient.Client {
	d := csidriver.New(s.driver)
	d.NodeID = node
	d.Topology = map[string]string{csidriver.TopologyKey: node}
	d.Plugin = append(d.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	capacity := newRoom(s.capacity.of(node), node)
	d.Capacity.Of = capacity.answer
	d.Before = func(ctx context.Context, rpc string, request any) error {
		if rpc == "CreateVolume" || rpc == "DeleteVolume" {
			if err := concurrency.Sleep(ctx, s.latency); err != nil {
				return err
			}
		}
		return capacity.account(request)
	}
	connection := csiclient.NewInProcess(d.Instance(node))
	csi.RegisterIdentityServer(connection, d)
	csi.RegisterControllerServer(connection, d)
	csi.RegisterGroupControllerServer(connection, d)
	csi.RegisterNodeServer(connection, d)
	return csiclient.New(connection, csiclient.Options{Driver: s.driver})
}

// report writes a line when the caches of all nodes have synced.
func report(ctx context.Context, all []*kube.Controllers) error {
	begun := time.Now()
	for _, one := range all {
		for {
			if _, err := one.Describe(); err == nil {
				break
			}
			if err := concurrency.Sleep(ctx, readyPoll); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Printf("ready: %d nodes after %.1f s\n", len(all), time.Since(begun).Seconds())
	return err
}
