package pods

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// start starts containers at once.
func (m *Manager) start(r *run, names []string) error {
	r.mu.Lock()
	mounted := map[string]workload.Volume{}
	for name, volume := range r.mounted {
		mounted[name] = workload.Volume{Path: volume.Path, Block: volume.Block, ReadOnly: volume.ReadOnly}
	}
	r.mu.Unlock()
	sources := workload.Sources{Volumes: mounted, Node: m.options.NodeName, Values: m.valuesIn(r.spec.Namespace)}
	specs := slices.Concat(r.spec.Spec.InitContainers, r.spec.Spec.Containers)
	failures := make([]error, len(specs))
	var group sync.WaitGroup
	for i := range specs {
		if !slices.Contains(names, specs[i].Name) {
			continue
		}
		container, err := workload.FromContainer(r.spec, &specs[i], sources)
		if err != nil {
			m.failed(r, specs[i].Name, reasonConfigError, err)
			failures[i] = err
			continue
		}
		group.Go(func() { failures[i] = m.startOne(r, container) })
	}
	group.Wait()
	m.awaitValues(r, failures)
	return errors.Join(failures...)
}

// valuesIn reads the Secrets and ConfigMaps of a namespace.
func (m *Manager) valuesIn(namespace string) workload.Values {
	return func(kind, name string) (found map[string][]byte, err error) {
		err = m.options.Store.View(func(tx *store.Tx) error {
			found, err = tx.Values(kind, store.Key(namespace, name))
			return err
		})
		return found, err
	}
}

// awaitValues requeues the pod when a Secret or a ConfigMap that its containers lack is
// created or changed.
func (m *Manager) awaitValues(r *run, failures []error) {
	var on []journal.Ref
	for _, err := range failures {
		if missing, ok := errors.AsType[*workload.MissingError](err); ok {
			on = append(on, journal.Ref{Kind: missing.Kind, Key: store.Key(missing.Namespace, missing.Name)})
		}
	}
	m.await(r.key, on)
}

func (m *Manager) failed(r *run, container, reason string, err error) {
	r.mu.Lock()
	r.trouble[container] = trouble{Reason: reason, Message: err.Error()}
	r.mu.Unlock()
	m.record(r, true, "Failed", "Error: "+err.Error())
}

func (m *Manager) startOne(r *run, spec workload.Container) error {
	m.starts <- struct{}{}
	defer func() { <-m.starts }()
	spec.Scratch = m.options.Paths.Container(r.uid, spec.Name)
	spec.Hide = append([]string{m.options.Paths.Root}, m.options.Private...)
	if err := os.MkdirAll(spec.Scratch, 0o750); err != nil {
		return fmt.Errorf("container %q: make its directory: %w", spec.Name, err)
	}
	r.mu.Lock()
	c := r.containers[spec.Name]
	pause := nextPause(c.state, m.options.BootID)
	r.mu.Unlock()
	state, process, err := c.shim.Start(spec, pause)
	if errors.Is(err, workload.ErrBusy) {
		return err
	}
	if err != nil {
		m.failed(r, spec.Name, reasonRunError, err)
		m.inspectAfterFailure(r, c)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trouble, spec.Name)
	delete(r.backOff, spec.Name)
	c.state, c.process = c.drained.apply(state), process
	if r.closed {
		return process.Close()
	}
	if state.Ended != nil && state.Ended.Reason == workload.ReasonStartError {
		m.record(r, true, "Failed", "Error: "+state.Ended.Message)
	} else {
		m.record(r, false, "Started", "Started container "+spec.Name)
	}
	m.watch(r, spec.Name, process)
	return nil
}

// nextPause is the back-off of the end of the attempt that begins now. A boot ends the
// back-off, as it ends that of a kubelet: the attempts before it failed with the machine.
func nextPause(last workload.State, boot string) time.Duration {
	switch {
	case last.BootID != boot:
		return 0
	case last.Phase == workload.Exited && last.Ended != nil:
		return pauseAfter(pauseBefore(*last.Ended, last.Pause))
	case last.Phase == workload.Starting:
		return last.Pause
	}
	return 0
}

// inspectAfterFailure: a failed start may have left a shim running.
func (m *Manager) inspectAfterFailure(r *run, c *container) {
	state, process, err := c.shim.Inspect(workload.ReasonUnknown)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		c.unsure = true
	case process != nil:
		c.state, c.process = c.drained.apply(state), process
		m.watch(r, c.name, process)
	default:
		c.state = c.drained.apply(state)
	}
}

// watch waits until a shim ends, or until this process releases it.
func (m *Manager) watch(r *run, name string, process Process) {
	m.watchers.Go(func() {
		if !process.Wait() {
			return
		}
		_ = process.Close()
		m.ended(r, name)
	})
}

// ended records a container's end and requeues the pod. The status alone does not
// do that: it can have the end already, from before the shim had ended.
func (m *Manager) ended(r *run, name string) {
	r.mu.Lock()
	c := r.containers[name]
	c.process, c.unsure = nil, true
	if err := r.readEnd(c); err != nil && !errors.Is(err, workload.ErrBusy) {
		m.logger.Error("how a container ended cannot be read", "pod", r.key, "container", name, "error", err)
	}
	r.mu.Unlock()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := m.publish(r, &store.Writer{Name: "end of container " + r.key + " " + name})
		if err == nil {
			break
		}
		m.logger.Error("the end of a container cannot be written", "pod", r.key, "container", name, "error", err)
		select {
		case <-m.closed:
			return
		case <-time.After(pause):
		}
	}
	r.mu.Lock()
	close(r.changed)
	r.changed = make(chan struct{})
	r.mu.Unlock()
	m.options.Requeue(r.key)
}

// stop sends SIGTERM to the containers, and SIGKILL after the grace period. It
// returns the rest of the grace period.
func (m *Manager) stop(r *run) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, grace := m.options.Now(), GracePeriod(r.spec)
	first := r.stopping.IsZero()
	if first {
		r.stopping = now
	}
	remaining := min(r.stopping.Add(grace).Sub(now), grace)
	signal := syscall.SIGTERM
	if remaining <= 0 {
		signal = syscall.SIGKILL
		r.killed = true
	}
	for _, name := range r.order {
		c := r.containers[name]
		if c.process == nil || !first && remaining > 0 {
			continue
		}
		if first {
			m.record(r, false, "Killing", "Stopping container "+name)
		}
		if err := c.process.Signal(signal); err != nil {
			m.logger.Error("a container cannot be signalled", "pod", r.key, "container", name, "error", err)
		}
	}
	return max(remaining, 0)
}

// GracePeriod is how long a pod's containers have to end; Kubernetes' default is 30 s.
func GracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(30)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	if given := pod.DeletionGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(seconds) * time.Second
}
