// Package host is CSI on one machine without a cluster: it finds drivers by
// their registration sockets, keeps claims and volumes in its store, brings
// volumes to pods and runs them as processes. It wires pluginwatch, plugins,
// store, volumes and workload together. It sees every driver, also one that
// runs in the same process, over its sockets.
package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/supervise"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/step"
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// Builtin is a driver that this process can serve itself.
type Builtin struct {
	Name string
	// Object is the CSIDriver that a cluster has for it; one that the user applies
	// replaces it.
	Object *storagev1.CSIDriver
	// Class and SnapshotClass, if set, are the driver's classes that a new store begins
	// with, as the default ones.
	Class         *storagev1.StorageClass
	SnapshotClass *snapshotv1.VolumeSnapshotClass
	// Serve serves the driver's sockets until the context ends. It returns nil
	// then, after the calls in flight.
	Serve func(ctx context.Context, sockets Sockets) error
	// Remains, if set, describes the volumes that an earlier host made with this
	// driver, "" if none. The host calls it before it creates a new store.
	Remains func(root string) (string, error)
}

// Sockets are the paths that a driver serves.
type Sockets struct {
	// Root is the host's root directory, in the layout of the kubelet's.
	Root string
	// CSI and Registration are paths of unix sockets.
	CSI, Registration string
}

// Options of a Host.
type Options struct {
	// Root is where everything of this host is.
	Root     string
	Builtins []Builtin
	// Private are directories that no container sees, besides Root, such as the pool
	// of a built-in driver.
	Private []string
	// Observe is called for each step of each volume (volumes.Options.Observe).
	Observe func(volumes.Event)
	// SecretsKey is the file with the key of the Secrets; see store.Options.
	SecretsKey string
	Logger     *slog.Logger
	Failpoints *failpoint.Set
	// Machine is the machine that the host runs on.
	Machine Machine
	// Admit decides about new pods, if given, and about those of a run.
	Admit Admit
	// Mutate, if set, changes a pod as the policy requires, before Admit
	// sees it. It returns the fields that it set; a second time, none.
	Mutate func(pod *corev1.Pod, driver func(name string) *storagev1.CSIDriver) (set []string)
	// Rest, if set, is called when the host becomes idle after work, to release memory.
	Rest func()
	// Registerer receives the metrics; nil for none.
	Registerer prometheus.Registerer
	// MetricsVolumes is the number of volumes of each driver in use whose names are metrics.
	MetricsVolumes int
	// Tracer begins the traces of mounts and other steps; nil for none.
	Tracer *tracing.Tracer
}

// Host is one host. Open it, use it from one goroutine, Close it.
type Host struct {
	options Options
	paths   claim.Paths
	store   *store.Store
	journal *journal.Journal
	plugins *plugins.Manager
	volumes *volumes.Manager
	// pods, set and supervisor are Serve's.
	pods       *pods.Manager
	set        *reconcile.Set
	supervisor *supervise.Supervisor
	// holds is locked while a hold is made, so that it is made once.
	holds   concurrency.Queue
	running running
	// steps, objects and unfinished are nil without a Registerer.
	steps      *step.Recorder
	objects    *objectMetrics
	unfinished *unfinished
	// infos is nil without MetricsVolumes.
	infos *concurrency.Background[[]metrics.VolumeInfo]
	// unsaved: the last backup of the store failed.
	unsaved  bool
	bootID   string
	stop     context.CancelFunc
	services sync.WaitGroup
	// serving has the built-in drivers that were started.
	serving map[string]*service
}

// service is a built-in driver that runs.
type service struct {
	stop  context.CancelFunc
	ended chan struct{}
	err   error // valid when ended is closed
}

// Open locks the root directory for this process, creates it if it is missing,
// and starts to watch for drivers. No driver is called yet.
func Open(ctx context.Context, options Options) (*Host, error) {
	root, err := filepath.Abs(options.Root)
	if err != nil {
		return nil, fmt.Errorf("the host's root directory %s: %w", options.Root, err)
	}
	for _, builtin := range options.Builtins {
		if _, err := socketsOf(claim.Paths{Root: root}, builtin.Name); err != nil {
			return nil, err // before anything is made
		}
	}
	if root, err = prepareRoot(root); err != nil {
		return nil, err
	}
	if options.Machine, err = options.Machine.complete(options.Logger); err != nil {
		return nil, err
	}
	opened, err := openStore(root, options)
	if err != nil {
		return nil, err
	}
	written, err := journal.Open(root, options.Logger)
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	h := &Host{
		options: options, paths: claim.Paths{Root: root}, store: opened, journal: written, bootID: options.Machine.BootID,
		plugins: options.Machine.newPlugins(options.Logger), serving: map[string]*service{},
	}
	if h.steps, err = newSteps(options.Registerer); err != nil {
		return nil, errors.Join(err, written.Close(), opened.Close())
	}
	h.volumes = volumes.New(volumes.Options{
		Store: opened, Drivers: h.plugins, Paths: h.paths, Mounts: options.Machine.Mounts, BootID: h.bootID, NodeName: h.nodeName(),
		Observe: h.observe, Record: written.Record, Logger: options.Logger, Failpoints: options.Failpoints,
		Tracer: options.Tracer,
	})
	h.watch(ctx)
	return h, nil
}

// prepareRoot makes the directory and resolves symbolic links in its own path:
// below it, symbolic links are refused.
func prepareRoot(root string) (string, error) {
	for _, directory := range []string{root, filepath.Join(root, "pods"), filepath.Join(root, "plugins")} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return "", fmt.Errorf("make the host's root directory (choose another with --root): %w", err)
		}
	}
	resolved, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", fmt.Errorf("the host's root directory %s: %w", root, err)
	}
	return resolved, nil
}

// watch follows the registration directory. It continues while the host closes:
// the last volumes are unmounted by the drivers that it found.
func (h *Host) watch(ctx context.Context) {
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	changes := make(chan pluginwatch.Change)
	h.services.Go(func() { h.plugins.Run(ctx, changes) })
	h.services.Go(func() {
		if err := h.options.Machine.Watch(ctx, h.paths.Registry(), changes); err != nil {
			h.options.Logger.Error("drivers that come or go are not seen any more", "error", err)
		}
	})
}

// Close stops the built-in drivers and unlocks the root directory.
func (h *Host) Close() error {
	var failed []error
	for name, service := range h.serving {
		service.stop()
		<-service.ended
		if service.err != nil {
			failed = append(failed, fmt.Errorf("driver %s: %w", name, service.err))
		}
	}
	h.stop()
	h.services.Wait()
	return errors.Join(append(failed, h.closeMetrics(), h.journal.Close(), h.store.Close())...)
}

// socketsOf is where a built-in driver serves. Too long a path cannot be bound.
func socketsOf(paths claim.Paths, driver string) (Sockets, error) {
	sockets := Sockets{
		Root: paths.Root, CSI: filepath.Join(paths.Driver(driver), "csi.sock"),
		Registration: filepath.Join(paths.Registry(), driver+"-reg.sock"),
	}
	for _, path := range []string{sockets.CSI, sockets.Registration} {
		if len(path) > client.MaximumSocketPath {
			return Sockets{}, fmt.Errorf("the socket path %s has %d bytes; a unix socket's path has %d at most: choose a shorter directory with --root",
				path, len(path), client.MaximumSocketPath)
		}
	}
	return sockets, nil
}

// startBuiltin serves a built-in driver and returns when it is registered.
func (h *Host) startBuiltin(ctx context.Context, builtin Builtin) error {
	if _, running := h.serving[builtin.Name]; running {
		return nil
	}
	sockets, err := socketsOf(h.paths, builtin.Name)
	if err != nil {
		return err
	}
	for _, socket := range []string{sockets.CSI, sockets.Registration} {
		if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
			return fmt.Errorf("driver %s: make the directory of its socket: %w", builtin.Name, err)
		}
	}
	// It serves until Close, also when the context of this run has ended: the
	// volumes are unmounted through it.
	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	running := &service{stop: stop, ended: make(chan struct{})}
	h.serving[builtin.Name] = running
	go func() {
		defer close(running.ended)
		running.err = builtin.Serve(serve, sockets)
	}()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-running.ended:
			cancel()
		case <-waiting.Done():
		}
	}()
	if _, err := h.plugins.Wait(waiting, builtin.Name); err != nil {
		select {
		case <-running.ended:
			if running.err != nil {
				delete(h.serving, builtin.Name)
				return fmt.Errorf("start driver %s: %w", builtin.Name, running.err)
			}
		default:
		}
		return err
	}
	return nil
}
