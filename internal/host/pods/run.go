package pods

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Names below a pod's directory, next to those of its volumes and of the
// containers' root directories.
const (
	runDirectory = "run"
	logDirectory = "logs"
	recordFile   = "pod.json"
)

// run is a pod of which this host has containers, mounts or files.
type run struct {
	key string
	uid types.UID
	// spec is the pod as it was first seen: its spec never changes.
	spec *corev1.Pod

	mu         sync.Mutex
	order      []string // the containers' names
	containers map[string]*container
	// mounted are the volumes' paths by name; nil: unknown, so mount again.
	mounted   map[string]volumes.Mounted
	unmounted bool
	// unmounting is the time of the first attempt to unmount the volumes.
	unmounting time.Time
	waits      string
	trouble    map[string]trouble
	// backOff has the containers whose back-off was recorded as an event.
	backOff map[string]bool
	// stopping is when the containers were signalled to end, killed that they were killed.
	stopping time.Time
	killed   bool
	closed   bool
	changed  chan struct{} // closed and replaced when a container ends
}

// changes is closed when the next container ends.
func (r *run) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// container is one of a run.
type container struct {
	name  string
	shim  Container
	state workload.State
	// process is its shim, nil if none lives.
	process Process
	// unsure: its end was seen, but not yet how.
	unsure bool
	// drained names the last attempt that a drain ended, nil if none did.
	drained *drainRecord
}

func (c *container) alive() bool { return c.process != nil || c.unsure }

// close releases the shim, which continues without this process.
func (c *container) close() error {
	if c.process == nil {
		return nil
	}
	return c.process.Close()
}

func (m *Manager) shim(uid types.UID, container string) workload.Shim {
	pod := m.options.Paths.Pod(uid)
	return workload.Shim{
		State: filepath.Join(pod, runDirectory, container), Logs: filepath.Join(pod, logDirectory, container),
		BootID: m.options.BootID, LogLimit: m.options.LogLimit, Failpoints: m.options.Failpoints,
	}
}

// runOf returns the run of a pod. The first call inspects the containers of an earlier
// host, and returns workload.ErrBusy if that must be retried.
func (m *Manager) runOf(pod *corev1.Pod) (*run, error) {
	m.mu.Lock()
	r := m.runs[pod.UID]
	m.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r = &run{
		key: store.Key(pod.Namespace, pod.Name), uid: pod.UID, spec: withoutStatus(pod),
		containers: map[string]*container{}, trouble: map[string]trouble{}, backOff: map[string]bool{},
		changed: make(chan struct{}),
	}
	for _, spec := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		c := &container{name: spec.Name, shim: m.processesOf(pod.UID, spec.Name)}
		var err error
		if c.state, c.process, err = c.shim.Inspect(workload.ReasonUnknown); err != nil {
			return nil, errors.Join(fmt.Errorf("container %q: %w", spec.Name, err), r.release())
		}
		if c.drained, err = m.readDrain(r, spec.Name); err != nil {
			return nil, errors.Join(fmt.Errorf("container %q: %w", spec.Name, err), c.close(), r.release())
		}
		c.state = c.drained.apply(c.state)
		r.order = append(r.order, spec.Name)
		r.containers[spec.Name] = c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs[pod.UID] = r
	for name, c := range r.containers {
		if c.process != nil {
			m.watch(r, name, c.process)
		}
	}
	return r, nil
}

// withoutStatus is the part of a pod that is kept in memory.
func withoutStatus(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Status, pod.ManagedFields = corev1.PodStatus{}, nil
	return pod
}

// release closes the handles of the shims, which continue without this process.
func (r *run) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var failed []error
	for _, c := range r.containers {
		failed = append(failed, c.close())
	}
	return errors.Join(failed...)
}

func (m *Manager) forget(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, r.uid)
}

// view returns the input of the decision. The caller has locked r.mu, or is the only
// owner of the run.
func (r *run) view(pod *corev1.Pod, m *Manager) view {
	v := view{
		Deleting: pod == nil || pod.UID != r.uid || pod.DeletionTimestamp != nil, Policy: r.spec.Spec.RestartPolicy,
		Holder: r.spec.Annotations[HolderAnnotation] != "", Mounted: r.mounted != nil, Unmounted: r.unmounted,
		Draining: m.draining.Load(), Now: m.options.Now(),
	}
	if v.Policy == "" {
		v.Policy = corev1.RestartPolicyAlways
	}
	if pod != nil && pod.UID == r.uid {
		v.Finished = pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	}
	list := func(specs []corev1.Container) []containerView {
		var views []containerView
		for i := range specs {
			c := r.containers[specs[i].Name]
			views = append(views, containerView{
				Name: specs[i].Name, Phase: c.state.Phase, Alive: c.alive(), Ended: c.state.Ended, Pause: c.state.Pause,
				OtherBoot: c.state.Phase != "" && c.state.BootID != m.options.BootID,
			})
		}
		return views
	}
	v.Init, v.Main = list(r.spec.Spec.InitContainers), list(r.spec.Spec.Containers)
	return v
}

// observe returns the input of the status. The caller has locked r.mu.
func (r *run) observe(pod *corev1.Pod, m *Manager) observed {
	o := observed{view: r.view(pod, m), States: map[string]workload.State{},
		Trouble: map[string]trouble{}, Waits: r.waits}
	for name, c := range r.containers {
		o.States[name] = c.state
	}
	for name, what := range r.trouble {
		o.Trouble[name] = what
	}
	// Containers that run have their volumes, also if an earlier host mounted them.
	o.Mounted = o.Mounted || o.alive()
	return o
}
