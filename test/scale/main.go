// Command scale runs the controllers of many nodes in one process, each with its own
// connections to the API server and its own simulated driver whose volumes are on that
// node. With it, `make bench-scale` measures a cluster of a thousand nodes on one machine.
// With -sockets it serves the drivers alone, for the controllers of others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

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
	sockets                       string
	first, nodes, parallel        int
	latency                       time.Duration
	ownOnly, elect                bool
	labelPolicy                   string
	capacity                      sizes
}

// gcPercent is that of the shipped program (package cli), so that memory is comparable.
const gcPercent = 50

func main() {
	debug.SetGCPercent(gcPercent)
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
	if s.sockets != "" {
		return s.serve(ctx)
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return s.start(working, group) })
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// start starts the nodes in the group, some at a time: the next one when the caches of one
// before are filled, as the pods of a rollout. It writes a line when those of all are.
func (s settings) start(ctx context.Context, group *errgroup.Group) error {
	begun := time.Now()
	var filling errgroup.Group
	filling.SetLimit(s.parallel)
	for i := range s.nodes {
		filling.Go(func() error {
			one, err := s.node(s.name(i))
			if err != nil {
				return err
			}
			group.Go(func() error { return one.Run(ctx) })
			return awaitFilled(ctx, one)
		})
	}
	if err := filling.Wait(); err != nil {
		return err
	}
	_, err := fmt.Printf("ready: %d nodes after %.1f s\n", s.nodes, time.Since(begun).Seconds())
	return err
}

// awaitFilled returns when the caches of a node are filled.
func awaitFilled(ctx context.Context, one *kube.Controllers) error {
	for {
		if _, err := one.Describe(); err == nil {
			return nil
		}
		if err := concurrency.Sleep(ctx, readyPoll); err != nil {
			return err
		}
	}
}

func parse() (s settings, err error) {
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` with the way to the API server")
	flag.StringVar(&s.driver, "driver", "scale.simulated.holdfast.dev", "CSI plugin `NAME`")
	flag.StringVar(&s.namespace, "namespace", "bench", "`NAMESPACE` of the processes' own objects")
	flag.IntVar(&s.first, "first", 0, "number of the first node")
	flag.IntVar(&s.nodes, "nodes", 1, "number of nodes")
	flag.IntVar(&s.parallel, "parallel", 25, "nodes that fill their caches at the same time")
	flag.DurationVar(&s.latency, "latency", 0, "how long a driver takes to create or delete a volume")
	flag.BoolVar(&s.ownOnly, "node-objects-only", true, "receive the objects of the own node only, as --node-objects-only")
	flag.StringVar(&s.labelPolicy, "node-label-policy", "", "`NAME` of the policy that labels volumes, as --node-label-policy")
	flag.Var(&s.capacity, "capacity", "`SIZES` of the nodes' storage, separated by commas, of which each node has the next one; 1Ti if it is not given")
	flag.StringVar(&s.sockets, "sockets", "", "`DIR` for the sockets of the drivers, NODE.sock; no controllers are run")
	flag.BoolVar(&s.elect, "elect", true, "take part in the election of the process that coordinates all nodes")
	flag.Parse()
	if s.kubeconfig == "" && s.sockets == "" || s.nodes < 1 {
		return s, errors.New("neither -kubeconfig nor -sockets is given, or -nodes is not above zero")
	}
	return s, nil
}

// name returns the name of the i-th node of this process.
func (s settings) name(i int) string { return fmt.Sprintf("scale-%05d", s.first+i) }

// serve serves the driver of each node on a socket until ctx ends.
func (s settings) serve(ctx context.Context) error {
	group, working := errgroup.WithContext(ctx)
	for i := range s.nodes {
		node := s.name(i)
		listener, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(s.sockets, node+".sock"))
		if err != nil {
			return err
		}
		driver := s.simulated(node)
		server := grpc.NewServer(grpc.UnaryInterceptor(driver.Instance(node)))
		driver.Register(server)
		context.AfterFunc(working, server.Stop)
		group.Go(func() error { return server.Serve(listener) })
	}
	if _, err := fmt.Printf("ready: %d drivers\n", s.nodes); err != nil {
		return err
	}
	return group.Wait()
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
	o.Tuning.NodeObjectsOnly, o.Tuning.NodeLabelPolicy = s.ownOnly, s.labelPolicy
	return kube.New(o)
}

// connect makes the driver of a node and a client that calls it.
func (s settings) connect(node string) *csiclient.Client {
	d := s.simulated(node)
	connection := csiclient.NewInProcess(d.Instance(node))
	csi.RegisterIdentityServer(connection, d)
	csi.RegisterControllerServer(connection, d)
	csi.RegisterGroupControllerServer(connection, d)
	csi.RegisterNodeServer(connection, d)
	return csiclient.New(connection, csiclient.Options{Driver: s.driver})
}

// simulated makes a driver whose volumes are on one node.
func (s settings) simulated(node string) *csidriver.Driver {
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
	return d
}
