package volumes

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Leftovers is what earlier processes did not finish.
type Leftovers struct {
	Uses          []*store.VolumeUse
	Pods          []*corev1.Pod
	Provisionings []*store.Provisioning
	// Deleting are claims whose deletion was begun.
	Deleting []*corev1.PersistentVolumeClaim
	drivers  map[string]bool
}

// Leftovers reads what there is to finish; it calls no driver.
func (m *Manager) Leftovers() (Leftovers, error) {
	left := Leftovers{drivers: map[string]bool{}}
	err := m.view(func(tx *store.Tx) (err error) {
		if left.Uses, err = tx.Uses().All(); err != nil {
			return err
		}
		if left.Pods, err = tx.Pods().All(); err != nil {
			return err
		}
		if left.Provisionings, err = tx.Provisionings().All(); err != nil {
			return err
		}
		return left.readDeleting(tx)
	})
	for _, use := range left.Uses {
		left.drivers[use.Driver] = true
	}
	return left, err
}

func (l *Leftovers) readDeleting(tx *store.Tx) error {
	claims, err := tx.Claims().All()
	if err != nil {
		return err
	}
	for _, pvc := range claims {
		if pvc.DeletionTimestamp == nil {
			continue
		}
		l.Deleting = append(l.Deleting, pvc)
		volume, err := tx.Volumes().Get(pvc.Spec.VolumeName)
		if err != nil {
			return err
		}
		if volume != nil {
			l.drivers[volume.Spec.CSI.Driver] = true
		}
		record, err := tx.Provisionings().Get(string(pvc.UID))
		if err != nil {
			return err
		}
		if record != nil {
			l.drivers[record.Driver] = true
		}
	}
	return nil
}

// Empty tells whether there is nothing to finish right away. A creation that
// was cut off is finished when its claim is wanted again.
func (l Leftovers) Empty() bool { return len(l.Uses) == 0 && len(l.Pods) == 0 && len(l.Deleting) == 0 }

// Needs tells whether a driver is needed to finish.
func (l Leftovers) Needs(driver string) bool { return l.drivers[driver] }

// Recover undoes every use that an earlier process left, finishes deletions and
// forgets dead pods. Whether the machine was rebooted in between does not
// matter for that: the calls are harmless for what is not mounted, and needed
// for what a driver keeps. What belongs to a driver that is not registered
// stays recorded for the next start, with a warning: it must not keep the
// volumes of others from their pods. Any other failure is returned, after
// everything that does not depend on it was done.
func (m *Manager) Recover(ctx context.Context, left Leftovers) error {
	waiting, err := m.recoverUses(ctx, left.Uses)
	if err != nil {
		return err
	}
	var work []func() error
	for _, pod := range left.Pods {
		if !waiting[pod.UID] {
			work = append(work, func() error { return m.forgetPod(pod) })
		}
	}
	for _, pvc := range left.Deleting {
		key := store.Key(pvc.Namespace, pvc.Name)
		work = append(work, func() error {
			err := m.DeleteClaim(ctx, key)
			if errors.Is(err, plugins.ErrNotRegistered) {
				m.logger.Warn("a claim cannot be deleted before its driver is registered", "claim", key, "error", err)
				return nil
			}
			return err
		})
	}
	return atOnce(work)
}

// recoverUses returns the pods that are still waiting for a driver.
func (m *Manager) recoverUses(ctx context.Context, uses []*store.VolumeUse) (map[types.UID]bool, error) {
	waiting := map[types.UID]bool{}
	var work []func() error
	for _, use := range uses {
		if _, err := m.options.Drivers.Driver(use.Driver); err != nil {
			m.logger.Warn("a volume of an earlier run stays in use until its driver is registered", "volume", use.Handle, "driver", use.Driver)
			for _, target := range use.Targets {
				waiting[target.PodUID] = true
			}
			continue
		}
		m.logger.Info("a volume is still in use by a process that is gone", "volume", use.Handle, "driver", use.Driver,
			"rebooted", use.BootID != m.options.BootID)
		work = append(work, func() error { return m.unmount(ctx, use.Name, func(store.Target) bool { return true }) })
	}
	return waiting, atOnce(work)
}

// atOnce does everything in parallel and returns all the errors.
func atOnce(work []func() error) error {
	var (
		mu     sync.Mutex
		failed []error
		group  sync.WaitGroup
	)
	for _, do := range work {
		group.Go(func() {
			if err := do(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	group.Wait()
	return errors.Join(failed...)
}
