package pods

import (
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// publish writes the pod's status if it changed. writer is the controller's if
// its own call writes, so that the change does not requeue the pod; another one if the
// write is to requeue it, as when a container ended.
func (m *Manager) publish(r *run, writer *store.Writer) error {
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
	return m.options.Store.UpdateAs(writer, func(tx *store.Tx) error {
		_, err := write(tx, true)
		return err
	})
}

// recordBackOff records once that a container waits before it is started again.
func (m *Manager) recordBackOff(r *run, d decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range d.BackOff {
		if !r.backOff[name] {
			r.backOff[name] = true
			m.record(r, true, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", name,
				describe(r.spec)))
		}
	}
}
