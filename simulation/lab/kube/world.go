package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// Names of the world.
const (
	driverName = "d.example"
	namespace  = "ns"
	system     = "holdfast-system"
	intents    = "holdfast-intents"
	// marker begins every secret value. It must appear in no write, log or event.
	marker = "s3cr3t-"
)

// chaosSteps is how many steps are taken with faults, and endSteps how many more after the
// namespace was deleted.
const (
	chaosSteps = 250
	endSteps   = 200
)

// idle is how long nothing happens, at most, while every process is cut off or waits. It is
// longer than a lease lasts, and than most watches stay behind. Each minute of it costs requests
// that do not arrive.
const idle = 2*time.Minute + time.Second

// World is a cluster and a driver.
type World struct {
	lab    *lab.Lab
	shape  shape
	server *apiserver.Server
	driver *csidriver.Driver
	mirror *mirror
	known  *runtime.Scheme

	ctx  context.Context //nolint:containedctx // it ends with the world
	stop context.CancelFunc
	// running are the goroutines of the world.
	running   sync.WaitGroup
	managers  []*manager
	replicas  []*replica
	kubelet   *lab.Process
	storage   *storage
	made      int // names of users' objects
	nodes     []string
	retained  *retained
	holder    string // of the Lease, after the last request about it
	gone      gone
	secrets   *markers
	mu        sync.Mutex
	processes map[string]*process
	subject   string // of the last step
	broken    error  // the first rule that was broken
	single    string // the fault of the next request that may have it
}

// shape is what differs between seeds.
type shape struct {
	attach    bool // the driver publishes volumes
	replicas  int
	nodes     bool // node deployment
	labels    bool // an admission policy and snapshot-controller label objects with their nodes
	modify    bool
	secret    bool // classes have secrets
	immediate bool
	short     bool          // quick retries
	siege     bool          // the storage refuses changes for a while at the end
	unready   bool          // snapshots are not ready at once
	ends      bool          // the namespace is deleted, and the faults go on
	stall     time.Duration // of watches
	// favourites are the actions that are frequent in this run.
	favourites []int
}

const (
	favouriteActions = 3
	favouriteWeight  = 12
	// endActions is the number of steps for each action after the namespace was deleted.
	endActions = 10
)

// Run is the world for lab.Run. With node deployment, each node has a driver of its own, and a
// process for the objects of that node.
func Run(known *runtime.Scheme, nodes bool) lab.World {
	return func(l *lab.Lab) error {
		w := newWorld(l, known, nodes)
		defer w.end()
		return w.live()
	}
}

func newWorld(l *lab.Lab, known *runtime.Scheme, nodes bool) *World {
	w := &World{
		lab: l, mirror: newMirror(), known: known, processes: map[string]*process{}, secrets: &markers{},
		nodes: []string{"n1", "n2", "n3"}, kubelet: l.Process("kubelet"),
	}
	w.gone = gone{claims: map[types.UID]time.Time{}, intents: map[string]bool{}, volumes: map[string]bool{}, kept: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	w.shape = shape{
		attach: !l.OneIn(4), replicas: 1 + l.Choose(3), modify: l.OneIn(2), secret: l.OneIn(2),
		immediate: l.OneIn(2), short: l.OneIn(2),
		siege: l.OneIn(4), unready: l.OneIn(3), ends: l.OneIn(2),
		stall: lab.Pick(l, 2*time.Minute, 2*time.Minute, 9*time.Minute), // the API server ends a watch after five to ten
	}
	if nodes {
		w.shape.nodes, w.shape.attach, w.shape.labels = true, false, l.OneIn(2)
	}
	for range favouriteActions {
		w.shape.favourites = append(w.shape.favourites, l.Choose(1<<10))
	}
	w.server = apiserver.NewServer(known, apiserver.Hooks{
		Before: w.before, After: w.after, Observe: w.observe, Deliver: w.deliver,
		Stale: func(apiserver.Request) uint64 { return 0 },
	})
	w.driver = csidriver.New(driverName)
	w.storage = newStorage(w)
	w.describeDriver()
	w.populate()
	for range 2 {
		w.createClaim(func(*corev1.PersistentVolumeClaim) {})
	}
	w.startManagers()
	w.startReplicas()
	return w
}

func (w *World) startReplicas() {
	if w.shape.nodes {
		for _, node := range w.nodes {
			w.startReplica("holdfast-"+node, node)
		}
		return
	}
	for i := range w.shape.replicas {
		w.startReplica(fmt.Sprintf("holdfast-%d", i), "")
	}
}

func (w *World) describeDriver() {
	d := w.driver
	d.Creation.Strict, d.Snapshots.Strict = true, true
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_LIST_VOLUMES, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	if w.shape.unready {
		d.Snapshots.UnreadyAnswers = 2
	}
	if w.shape.attach {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	if w.shape.nodes {
		d.Plugin = append(d.Plugin, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	if w.shape.modify {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
}

// live is the life of the world: faults, then peace, then the end of every object.
func (w *World) live() error {
	if err := w.lab.Chaos(chaosSteps, lab.Plan{Actions: w.actions, Idle: idle, Check: w.check}); err != nil {
		return err
	}
	if w.shape.ends {
		w.lab.Note("the namespace is deleted")
		w.deleteNamespace()
		if err := w.lab.Chaos(endSteps, lab.Plan{Actions: w.actions, ActionEvery: endActions, Idle: idle, Check: w.check}); err != nil {
			return err
		}
	}
	if w.shape.siege {
		if err := w.besiege(); err != nil {
			return err
		}
	}
	w.calm()
	if err := w.lab.Converge(lab.Plan{Check: w.check}, w.consistent); err != nil {
		return fmt.Errorf("the objects do not become consistent: %w", err)
	}
	if err := w.singleTrouble(); err != nil {
		return err
	}
	w.lab.Note("every object is deleted")
	w.deleteAll()
	if err := w.lab.Converge(lab.Plan{Check: w.check}, w.empty); err != nil {
		return fmt.Errorf("deletions do not end: %w", err)
	}
	return nil
}

// end stops every goroutine.
func (w *World) end() {
	for _, r := range w.replicas {
		r.crash()
	}
	for _, m := range w.managers {
		m.process.Crash()
	}
	w.kubelet.Crash()
	w.storage.later.Crash()
	w.stop()
	w.server.BreakWatches("*")
	w.running.Wait()
	time.Sleep(24 * time.Hour) // lets what waits for a timer notice the end
}

// violate records that a rule was broken.
func (w *World) violate(format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil {
		w.broken = fmt.Errorf(format, arguments...)
	}
}

// check returns the first rule that was broken.
func (w *World) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	return nil
}
