package pods

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// HolderAnnotation names who runs a pod that this host only mounts the volumes
// of. No container of it is started.
const HolderAnnotation = "holdfast.dev/holder"

// Volumes mounts and unmounts the volumes of pods; *volumes.Manager implements
// it. If it also has EnsureEphemeral, that is called before MountPod.
type Volumes interface {
	MountPod(ctx context.Context, pod *corev1.Pod) (map[string]volumes.Mounted, error)
	UnmountPod(ctx context.Context, pod *corev1.Pod) error
}

// ephemerals makes the claims of a pod's generic ephemeral volumes.
type ephemerals interface {
	EnsureEphemeral(ctx context.Context, pod *corev1.Pod) error
}

// Options of a Manager. Store, Volumes, Paths, BootID and Requeue are required.
type Options struct {
	Store   *store.Store
	Volumes Volumes
	Paths   claim.Paths
	// Requeue has the controller called for a key of it, at once.
	Requeue func(key string)
	// BootID is of the running boot.
	BootID string
	// NodeName is this machine's, for the downward API.
	NodeName string
	// Private are directories that no container sees, besides Paths.Root.
	Private    []string
	Logger     *slog.Logger
	Failpoints *failpoint.Set
	// Record is called for each event. It must not block.
	Record func(journal.Notice)
	// Mounted, if given, is called when a pod's volumes are mounted, before the pod
	// counts as running, and again after a restart; Unmounting, if given, before
	// they are unmounted. A call that fails is retried.
	Mounted    func(ctx context.Context, pod *corev1.Pod, mounted map[string]volumes.Mounted) error
	Unmounting func(ctx context.Context, pod *corev1.Pod) error
	// Containers returns the containers of pods, by the pod's UID and the container's name.
	// If nil, they are processes of this machine (package workload).
	Containers func(pod types.UID, name string) Container
	// Ready, if given, is called when the volumes of a pod are mounted and Mounted
	// has returned, before its status says so, and when a pod is drained. It must
	// not block.
	Ready func()
	// LogLimit is how large a container's log file grows, workload.DefaultLogLimit if 0.
	LogLimit int64
	// Now is the clock, time.Now if nil.
	Now func() time.Time
}

// Manager runs the pods of one host.
type Manager struct {
	options Options
	logger  *slog.Logger

	mu      sync.Mutex
	runs    map[types.UID]*run
	waiting map[journal.Ref]map[string]bool // what pods wait for, and their keys
	orphans map[string][]*corev1.Pod        // that an earlier host ran and the store lacks, by key
	closed  chan struct{}
	// draining is set once, when the machine shuts down.
	draining atomic.Bool
	// starts bounds how many containers are started at one time.
	starts   chan struct{}
	watchers sync.WaitGroup
}

// atOnce is how many containers are started at one time. A start costs
// processor time: more at once would only use more memory.
const atOnce = 8

// New makes a Manager. It changes nothing on the machine before the controller
// runs.
func New(options Options) *Manager {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Record == nil {
		options.Record = func(journal.Notice) {}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Ready == nil {
		options.Ready = func() {}
	}
	return &Manager{
		options: options, logger: options.Logger, runs: map[types.UID]*run{}, waiting: map[journal.Ref]map[string]bool{},
		orphans: map[string][]*corev1.Pod{},
		closed:  make(chan struct{}), starts: make(chan struct{}, atOnce),
	}
}

// Close releases the containers, which continue without this process. Call it
// after the controller has stopped.
func (m *Manager) Close() error {
	close(m.closed)
	var failed []error
	m.mu.Lock()
	for _, r := range m.runs {
		failed = append(failed, r.release())
	}
	m.mu.Unlock()
	m.watchers.Wait()
	return errors.Join(failed...)
}

// Drain makes each following call of the controller end the pod's processes and
// unmount its volumes, and keep the object: a later host starts it again. Nothing
// undoes it but the end of this process.
func (m *Manager) Drain() { m.draining.Store(true) }

// Drained reports whether nothing of a pod runs or is mounted, as far as this
// process knows: it is false before the first call of the controller for the pod. A pod
// that was removed meanwhile is drained: its object goes last.
func (m *Manager) Drained(key string, uid types.UID) bool {
	m.mu.Lock()
	r := m.runs[uid]
	m.mu.Unlock()
	if r == nil {
		pod, err := m.get(key)
		return err == nil && (pod == nil || pod.UID != uid)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if c.alive() {
			return false
		}
	}
	return r.unmounted
}

// Mounted returns the paths of a pod's volumes by their names in the pod, and
// reports whether all are mounted.
func (m *Manager) Mounted(uid types.UID) (map[string]volumes.Mounted, bool) {
	m.mu.Lock()
	r := m.runs[uid]
	m.mu.Unlock()
	if r == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mounted, r.mounted != nil
}

func (m *Manager) record(r *run, warning bool, reason, message string) {
	m.options.Record(journal.Notice{
		About:   journal.Ref{Kind: "Pod", Key: r.key, UID: string(r.uid)},
		Warning: warning, Reason: reason, Message: message,
	})
}

// hit passes a failpoint.
func (m *Manager) hit(name string) error { return m.options.Failpoints.Hit("pods/" + name) }

func (m *Manager) get(key string) (pod *corev1.Pod, err error) {
	err = m.options.Store.View(func(tx *store.Tx) error {
		pod, err = tx.Pods().Get(key)
		return err
	})
	return pod, err
}
