package pods

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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

// Volumes brings volumes to pods; *volumes.Manager does. One that also has
// EnsureEphemeral is asked for the claims of generic ephemeral volumes first.
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
	// Record is told of what a cluster would show as events. It must not block.
	Record func(journal.Notice)
	// Placed, if given, is called when a pod's volumes are mounted, before the pod
	// counts as running, and again after a restart; Displace, if given, before
	// they are unmounted. What fails is tried again.
	Placed   func(ctx context.Context, pod *corev1.Pod, mounted map[string]volumes.Mounted) error
	Displace func(ctx context.Context, pod *corev1.Pod) error
	// Ready, if given, is called when the volumes of a pod are in place for
	// Mounted, before its status says so. It must not block.
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
	left    map[string][]*corev1.Pod        // of an earlier host, without an object, by key
	closed  chan struct{}
	// starts bounds how many containers are started at one time.
	starts   chan struct{}
	watchers sync.WaitGroup
}

// atOnce is how many containers are started at one time: what a start costs is
// a processor's time, and more at once would only use more memory.
const atOnce = 8

// New makes a Manager. It touches nothing before the controller runs.
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
		left:   map[string][]*corev1.Pod{},
		closed: make(chan struct{}), starts: make(chan struct{}, atOnce),
	}
}

// Close lets go of the containers: they go on without this process. Call it
// when the controller does not run any more.
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

// Mounted has the places of a pod's volumes, by their names in the pod. It
// reports whether they are all there.
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
