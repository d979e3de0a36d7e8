package kube

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	controllers "github.com/holdfast-csi/holdfast/internal/kube"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/lease"
	"github.com/holdfast-csi/holdfast/internal/kube/work"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// process is a process of the product, from its start to its end.
type process struct {
	*lab.Process
	stop context.CancelFunc
	node string // with node deployment
	// paused is set once the process was stopped for a while: it may then not know that it
	// has lost the lease.
	paused atomic.Bool
	// sawHolder is the process that the Lease named when this one read it last. A process that
	// has not seen the Lease of the last holder, because an administrator deleted it before that,
	// may create it at once: outrun is set for the one that held it then, which creates it again
	// if that is deleted, too.
	sawHolder atomic.Value
	outrun    atomic.Bool
	// clock is how far the clock of the process is ahead of the others', in nanoseconds. Only
	// the times that it writes into a Lease show that.
	clock atomic.Int64
	sight sight
	owes  owes
}

// replica is a pod whose process is started again whenever it ends.
type replica struct {
	world *World
	name  string
	node  string // with node deployment

	mu      sync.Mutex
	current *process
}

func (w *World) startReplica(name, node string) {
	r := &replica{world: w, name: name, node: node}
	w.replicas = append(w.replicas, r)
	w.running.Go(r.run)
}

func (r *replica) run() {
	w := r.world
	for generation := 1; w.ctx.Err() == nil; generation++ {
		if err := r.once(generation); err != nil {
			w.lab.Note("%s ended: %v", r.name, err)
		}
		if _, err := w.kubelet.Pass(w.ctx, lab.Step{Kind: "start", Object: r.name}); err != nil {
			return
		}
	}
}

// once runs one process until it ends.
func (r *replica) once(generation int) error {
	w := r.world
	ctx, stop := context.WithCancel(w.ctx)
	defer stop()
	name := fmt.Sprintf("%s.%d", r.name, generation)
	p := &process{Process: w.lab.Process(name), stop: stop, node: r.node, sight: sight{stall: w.shape.stall}}
	w.mu.Lock()
	w.processes[p.Name()] = p
	w.mu.Unlock()
	r.mu.Lock()
	r.current = p
	r.mu.Unlock()
	made, err := controllers.New(w.options(p))
	if err == nil {
		err = made.Run(ctx)
	}
	p.Crash() // nothing that remains of it has an effect
	w.server.BreakWatches(p.Name())
	return err
}

func (r *replica) now() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// outrun reports whether a process works that does not know yet that another one could take
// the lease.
func (w *World) outrun() bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool {
		p := r.now()
		return p != nil && p.outrun.Load() && !p.Dead()
	})
}

// crash ends the process between two steps.
func (r *replica) crash() {
	if p := r.now(); p != nil {
		p.Crash()
		p.stop()
	}
}

// options are those of a process.
func (w *World) options(p *process) controllers.Options {
	logger := slog.New(slog.NewTextHandler(&journal{world: w, process: p.Name()}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	connection := client.NewInProcess(w.intercept(p))
	csi.RegisterIdentityServer(connection, w.driver)
	csi.RegisterControllerServer(connection, w.driver)
	csi.RegisterNodeServer(connection, w.driver)
	csi.RegisterGroupControllerServer(connection, w.driver)
	retry := work.Retry{}
	if w.shape.short {
		retry = shortRetries()
	}
	return controllers.Options{
		Clients: w.clients(p), CSI: client.New(connection, client.Options{Driver: driverName, Logger: logger}),
		Node: p.node, Namespace: system, Intents: intents, Elect: true, Lease: lease.Options{Identity: p.Name()},
		Tuning: controllers.Tuning{
			VolumeNamePrefix: "pvc", VolumeNameUUIDLength: -1, KeepVolumeMode: true, HandleInUse: true, ImmediateTopology: true,
			NodeObjectsOnly: p.node != "", ImmediateOnNodes: true,
			SnapshotNames: claim.Naming{Prefix: "snapshot", UIDLength: -1}, GroupNames: claim.Naming{Prefix: "groupsnapshot", UIDLength: -1},
		},
		Limits: controllers.Limits{All: cluster.Limits{Workers: 4, Retry: retry}},
		Logger: logger, Registerer: prometheus.NewRegistry(), FreeMemory: func() {},
	}
}

func (w *World) clients(p *process) cluster.Clients {
	config := w.server.Config(p.Name())
	core, err := api.NewKubernetes(config)
	if err != nil {
		panic(err)
	}
	snapshotting, err := api.NewSnapshots(config)
	if err != nil {
		panic(err)
	}
	gateway, err := api.NewGateway(config)
	if err != nil {
		panic(err)
	}
	return cluster.Clients{Core: core, Snapshots: snapshotting, Gateway: gateway, Leases: core, Events: core}
}

// journal is the log of a process. It is searched for secrets.
type journal struct {
	world   *World
	process string
}

func (j *journal) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte(marker)) {
		j.world.violate("the log has a secret: %s", text)
	}
	if j.world.secrets.verbose {
		j.world.lab.Note("%s %s", j.process, bytes.TrimSpace(text))
	}
	return len(text), nil
}

// markers are how secrets are found.
type markers struct{ verbose bool }
