package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// advance does one thing after another until there is nothing to do now. done
// tells that nothing is left of the pod. again, if not 0, is when to look again.
func (m *Manager) advance(ctx context.Context, r *run) (again time.Duration, done bool, err error) {
	for {
		pod, err := m.get(r.key)
		if err != nil {
			return 0, false, err
		}
		if err := m.settle(r); err != nil {
			return workload.BusyPause, false, nil //nolint:nilerr // it is looked at again in an instant
		}
		r.mu.Lock()
		d := next(r.view(pod, m))
		r.mu.Unlock()
		m.tellBackOff(r, d)
		if err := m.publish(r); err != nil {
			return 0, false, err
		}
		switch d.Do {
		case actNone:
			return d.Again, false, nil
		case actMount:
			err = m.mount(ctx, r, pod)
			if errors.Is(err, volumes.ErrWaiting) {
				return d.Again, false, m.publish(r)
			}
		case actStart:
			err = m.start(r, d.Start)
			if errors.Is(err, workload.ErrBusy) {
				return workload.BusyPause, false, nil
			}
		case actStop:
			return m.stop(r), false, m.publish(r)
		case actUnmount:
			err = m.unmount(ctx, r)
		case actRemove:
			return 0, true, m.remove(r)
		}
		if err != nil {
			return 0, false, errors.Join(err, m.publish(r))
		}
	}
}

// settle looks at containers whose end was seen but could not be read.
func (m *Manager) settle(r *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if !c.unsure || c.process != nil {
			continue
		}
		if err := r.look(c); err != nil {
			return err
		}
	}
	return nil
}

// look reads how a container ended, with the lock held.
func (r *run) look(c *container) error {
	reason := workload.ReasonUnknown
	if r.killed {
		reason = workload.ReasonError
	}
	state, process, err := c.place.Look(reason)
	if process != nil {
		err = errors.Join(workload.ErrBusy, process.Close()) // it is not over yet
	}
	if err == nil {
		c.state, c.unsure = state, false
	}
	return err
}

// mount brings the volumes.
func (m *Manager) mount(ctx context.Context, r *run, pod *corev1.Pod) error {
	if err := m.writeRecord(r.spec); err != nil {
		return err
	}
	if err := m.hit("recorded"); err != nil {
		return err
	}
	mounted, err := m.mountVolumes(ctx, pod)
	waits := ""
	var waiting *volumes.Waiting
	if errors.Is(err, volumes.ErrWaiting) {
		waits = err.Error()
	}
	if errors.As(err, &waiting) {
		m.await(r.key, waiting.On)
	} else {
		m.await(r.key, nil)
	}
	r.mu.Lock()
	r.waits = waits
	if err == nil {
		r.mounted = mounted
		if r.mounted == nil {
			r.mounted = map[string]volumes.Mounted{}
		}
	}
	r.mu.Unlock()
	if err != nil && waits == "" && ctx.Err() == nil {
		m.record(r, true, "FailedMount", "Unable to attach or mount volumes: "+err.Error())
	}
	if err != nil {
		return err
	}
	return m.hit("mounted")
}

func (m *Manager) mountVolumes(ctx context.Context, pod *corev1.Pod) (map[string]volumes.Mounted, error) {
	if maker, can := m.options.Volumes.(ephemerals); can {
		if err := maker.EnsureEphemeral(ctx, pod); err != nil {
			return nil, err
		}
	}
	return m.options.Volumes.MountPod(ctx, pod)
}

// start starts containers at once.
func (m *Manager) start(r *run, names []string) error {
	r.mu.Lock()
	places := map[string]workload.Volume{}
	for name, volume := range r.mounted {
		places[name] = workload.Volume{Path: volume.Path, Block: volume.Block, ReadOnly: volume.ReadOnly}
	}
	r.mu.Unlock()
	translated, err := workload.FromPod(r.spec, places, m.options.NodeName)
	if err != nil {
		for _, name := range names {
			m.failed(r, name, reasonConfigError, err)
		}
		return err
	}
	failures := make([]error, len(names))
	var group sync.WaitGroup
	for _, container := range slices.Concat(translated.Init, translated.Main) {
		if i := slices.Index(names, container.Name); i >= 0 {
			group.Go(func() { failures[i] = m.startOne(r, container) })
		}
	}
	group.Wait()
	return errors.Join(failures...)
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
	spec.Hide = m.options.Paths.Root
	if err := os.MkdirAll(spec.Scratch, 0o750); err != nil {
		return fmt.Errorf("container %q: make its directory: %w", spec.Name, err)
	}
	r.mu.Lock()
	c := r.containers[spec.Name]
	pause := time.Duration(0)
	switch {
	case c.state.Phase == workload.Exited && c.state.Ended != nil:
		pause = pauseAfter(pauseBefore(*c.state.Ended, c.state.Pause))
	case c.state.Phase == workload.Starting:
		pause = c.state.Pause
	}
	r.mu.Unlock()
	state, process, err := c.place.Start(spec, pause)
	if errors.Is(err, workload.ErrBusy) {
		return err
	}
	if err != nil {
		m.failed(r, spec.Name, reasonRunError, err)
		m.lookAgain(r, c)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.trouble, spec.Name)
	delete(r.backOff, spec.Name)
	c.state, c.process = state, process
	if r.closed {
		return process.Close()
	}
	m.record(r, false, "Started", "Started container "+spec.Name)
	if state.Ended != nil && state.Ended.Reason == workload.ReasonStartError {
		m.record(r, true, "Failed", "Error: "+state.Ended.Message)
	}
	m.watch(r, spec.Name, process)
	return nil
}

// lookAgain: a failed start may have left a shim that runs.
func (m *Manager) lookAgain(r *run, c *container) {
	state, process, err := c.place.Look(workload.ReasonUnknown)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		c.unsure = true
	case process != nil:
		c.state, c.process = state, process
		m.watch(r, filepath.Base(c.place.State), process)
	default:
		c.state = state
	}
}

// watch follows a shim until it ends, or until this process lets go of it.
func (m *Manager) watch(r *run, name string, process *workload.Process) {
	m.watchers.Go(func() {
		if !process.Wait() {
			return
		}
		_ = process.Close()
		m.ended(r, name)
	})
}

// ended enters a container's end; the change of the status has the controller
// look at the pod.
func (m *Manager) ended(r *run, name string) {
	r.mu.Lock()
	c := r.containers[name]
	c.process, c.unsure = nil, true
	if err := r.look(c); err != nil && !errors.Is(err, workload.ErrBusy) {
		m.logger.Error("how a container ended cannot be read", "pod", r.key, "container", name, "error", err)
	}
	r.mu.Unlock()
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := m.publish(r)
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
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// stop tells the containers to end, and after the grace period makes them. It
// returns when to look again, if they have not ended by then.
func (m *Manager) stop(r *run) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, grace := m.options.Now(), gracePeriod(r.spec)
	first := r.stopping.IsZero()
	if first {
		r.stopping = now
	}
	left := min(r.stopping.Add(grace).Sub(now), grace)
	signal := syscall.SIGTERM
	if left <= 0 {
		signal = syscall.SIGKILL
		r.killed = true
	}
	for _, name := range r.order {
		c := r.containers[name]
		if c.process == nil || !first && left > 0 {
			continue
		}
		if first {
			m.record(r, false, "Killing", "Stopping container "+name)
		}
		if err := c.process.Signal(signal); err != nil {
			m.logger.Error("a container cannot be told to end", "pod", r.key, "container", name, "error", err)
		}
	}
	return max(left, 0)
}

// gracePeriod: Kubernetes' default is 30 s.
func gracePeriod(pod *corev1.Pod) time.Duration {
	seconds := int64(30)
	if given := pod.Spec.TerminationGracePeriodSeconds; given != nil {
		seconds = *given
	}
	if given := pod.DeletionGracePeriodSeconds; given != nil {
		seconds = *given
	}
	return time.Duration(seconds) * time.Second
}

// unmount takes the volumes away; nothing of the pod runs.
func (m *Manager) unmount(ctx context.Context, r *run) error {
	if err := m.hit("stopped"); err != nil {
		return err
	}
	m.await(r.key, nil)
	r.mu.Lock()
	r.mounted = nil // also after a failure: nobody knows what is left
	r.waits = ""
	r.mu.Unlock()
	if err := m.options.Volumes.UnmountPod(ctx, r.spec); err != nil {
		return err
	}
	r.mu.Lock()
	r.unmounted = true
	r.mu.Unlock()
	return m.hit("unmounted")
}

// remove removes what is left on the disk, and last the object.
func (m *Manager) remove(r *run) error {
	directory, err := os.OpenRoot(m.options.Paths.Pod(r.uid))
	if err == nil {
		// The record goes last: until then the rest is found by it.
		for _, name := range slices.Sorted(maps.Keys(r.containers)) {
			err = errors.Join(err, directory.RemoveAll(filepath.Join(runDirectory, name)))
		}
		err = errors.Join(err, directory.RemoveAll(logDirectory), directory.RemoveAll(runDirectory), directory.Close())
		if err == nil {
			// A volume manager that left something there says so itself.
			_ = os.Remove(m.options.Paths.Pod(r.uid))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	if err := m.hit("removed"); err != nil {
		return err
	}
	err = m.options.Store.Update(func(tx *store.Tx) error {
		pod, err := tx.Pods().Get(r.key)
		if err != nil || pod == nil || pod.UID != r.uid || pod.DeletionTimestamp == nil || len(pod.Finalizers) > 0 {
			return err
		}
		return tx.Pods().Delete(r.key)
	})
	if err == nil {
		m.forget(r)
	}
	return err
}

// publish writes the pod's status if it changed.
func (m *Manager) publish(r *run) error {
	write := func(tx *store.Tx, put bool) (changed bool, err error) {
		pod, err := tx.Pods().Get(r.key)
		if err != nil || pod == nil || pod.UID != r.uid {
			return false, err
		}
		r.mu.Lock()
		o := r.observe(pod, m)
		r.mu.Unlock()
		before := pod.Status
		pod.Status = statusOf(pod, o)
		if sameStatus(before, pod.Status) {
			return false, nil
		}
		if put {
			err = tx.Pods().Put(r.key, pod)
		}
		return true, err
	}
	var changed bool
	err := m.options.Store.View(func(tx *store.Tx) (err error) {
		changed, err = write(tx, false)
		return err
	})
	if err != nil || !changed {
		return err
	}
	return m.options.Store.Update(func(tx *store.Tx) error {
		_, err := write(tx, true)
		return err
	})
}

// tellBackOff records once that a container waits before it is started again.
func (m *Manager) tellBackOff(r *run, d decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range d.BackOff {
		if !r.backOff[name] {
			r.backOff[name] = true
			m.record(r, true, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", name, describe(r.spec)))
		}
	}
}
