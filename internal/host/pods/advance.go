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
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// advance takes one action after another until none is due. done reports that
// nothing of the pod remains. again, if not 0, is the delay until the next call.
func (m *Manager) advance(ctx context.Context, r *run) (again time.Duration, done bool, err error) { //nolint:gocognit // one loop over the decisions
	writer := store.WriterOf(ctx)
	for {
		pod, err := m.get(r.key)
		if err != nil {
			return 0, false, err
		}
		if err := m.resolveEnds(r); errors.Is(err, workload.ErrBusy) {
			return workload.BusyPause, false, nil
		} else if err != nil {
			return 0, false, err
		}
		r.mu.Lock()
		d := next(r.view(pod, m))
		r.mu.Unlock()
		m.recordBackOff(r, d)
		// The status of a hold is written after the attempt only: its caller waits for
		// the volumes, and before them the status says nothing new.
		if d.Do != actMount || r.spec.Annotations[HolderAnnotation] == "" {
			if err := m.publish(r, writer); err != nil {
				return 0, false, err
			}
		}
		switch d.Do {
		case actNone:
			if m.draining.Load() {
				m.options.Ready()
			}
			return d.Again, false, nil
		case actMount:
			err = m.mount(ctx, r, pod)
			if errors.Is(err, volumes.ErrWaiting) {
				return d.Again, false, m.publish(r, writer)
			}
		case actStart:
			err = m.start(r, d.Start)
			if errors.Is(err, workload.ErrBusy) {
				return workload.BusyPause, false, nil
			}
		case actStop:
			if err := m.recordDrain(r); err != nil {
				return 0, false, err
			}
			return m.stop(r), false, m.publish(r, writer)
		case actUnmount:
			err = m.unmount(ctx, r)
		case actRemove:
			return 0, true, m.remove(r)
		}
		if err != nil {
			return 0, false, errors.Join(err, m.publish(r, writer))
		}
	}
}

// resolveEnds reads the exit state of containers whose end was observed but could
// not be read.
func (m *Manager) resolveEnds(r *run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if !c.unsure || c.process != nil {
			continue
		}
		if err := r.readEnd(c); err != nil {
			return err
		}
	}
	return nil
}

// readEnd reads how a container ended. The caller has locked r.mu.
func (r *run) readEnd(c *container) error {
	reason := workload.ReasonUnknown
	if r.killed {
		reason = workload.ReasonError
	}
	state, process, err := c.shim.Inspect(reason)
	if process != nil {
		err = errors.Join(workload.ErrBusy, process.Close()) // the shim still runs
	}
	if err == nil {
		c.state, c.unsure = c.drained.apply(state), false
	}
	return err
}

// mount mounts the pod's volumes.
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
	m.options.Ready()
	return m.hit("mounted")
}

func (m *Manager) mountVolumes(ctx context.Context, pod *corev1.Pod) (map[string]volumes.Mounted, error) {
	if maker, can := m.options.Volumes.(ephemerals); can {
		if err := maker.EnsureEphemeral(ctx, pod); err != nil {
			return nil, err
		}
	}
	mounted, err := m.options.Volumes.MountPod(ctx, pod)
	if err == nil && m.options.Mounted != nil {
		err = m.options.Mounted(ctx, pod, mounted)
	}
	return mounted, err
}

// A volume is mostly busy for seconds: a process of another namespace that has
// just ended, an indexer, a backup. For the first minutes the host retries at short
// intervals.
const (
	busyPeriod = 5 * time.Minute
	busyPause  = 4 * time.Second
)

// unmount unmounts the volumes; no container of the pod runs.
func (m *Manager) unmount(ctx context.Context, r *run) error {
	if err := m.hit("stopped"); err != nil {
		return err
	}
	m.await(r.key, nil)
	r.mu.Lock()
	r.mounted = nil // also after a failure: the mounts are unknown then
	r.waits = ""
	if r.unmounting.IsZero() {
		r.unmounting = m.options.Now()
	}
	began := r.unmounting
	r.mu.Unlock()
	if m.options.Unmounting != nil {
		if err := m.options.Unmounting(ctx, r.spec); err != nil {
			m.record(r, true, "FailedUnmount", err.Error())
			return err
		}
	}
	if err := m.options.Volumes.UnmountPod(ctx, r.spec); err != nil {
		if m.options.Now().Sub(began) < busyPeriod {
			err = reconcile.Within(err, busyPause)
		}
		return err
	}
	r.mu.Lock()
	r.unmounted = true
	r.mu.Unlock()
	return m.hit("unmounted")
}

// remove removes the pod's files, and last the object.
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
	err = m.options.Store.UpdateAs(&store.Writer{Name: "end of pod " + r.key}, func(tx *store.Tx) error {
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
