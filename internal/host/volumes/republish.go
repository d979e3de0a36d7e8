package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/reconcile"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// republishPeriod is how often the kubelet publishes volumes again whose driver
// asks for it, times 1 to 1.5 (its sync frequency).
const republishPeriod = time.Minute

// dueTimes has the times of the next NodePublishVolume of published volumes, by path.
type dueTimes struct {
	mu    sync.Mutex
	times map[string]time.Time
}

// of is when a path is due; one that is not known yet has just been published,
// or was by an earlier process, and is due a period from now.
func (d *dueTimes) of(path string) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if due, known := d.times[path]; known {
		return due
	}
	return d.setLocked(path)
}

func (d *dueTimes) done(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.setLocked(path)
}

func (d *dueTimes) setLocked(path string) time.Time {
	if d.times == nil {
		d.times = map[string]time.Time{}
	}
	due := time.Now().Add(republishPeriod + rand.N(republishPeriod/2))
	d.times[path] = due
	return due
}

func (d *dueTimes) forget(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.times, path)
}

// republished is one target of a driver that requires it.
type republished struct {
	use    string // name
	path   string
	target store.Target
}

func requiresRepublish(object *storagev1.CSIDriver) bool {
	return object != nil && object.Spec.RequiresRepublish != nil && *object.Spec.RequiresRepublish
}

// toRepublish lists a driver's mounted volumes, if its CSIDriver object has
// requiresRepublish.
func (m *Manager) toRepublish(driver string) (all []republished, err error) {
	err = m.view(func(tx *store.Tx) error {
		object, err := tx.Drivers().Get(driver)
		if err != nil || !requiresRepublish(object) {
			return err
		}
		uses, err := tx.Uses().All()
		for _, use := range uses {
			for path, target := range use.Targets {
				if use.Driver == driver && target.Phase == store.PhaseDone && !use.Block {
					all = append(all, republished{use: use.Name, path: path, target: target})
				}
			}
		}
		return err
	})
	return all, err
}

// nextRepublish is the time of the next republish for a driver; ok is false while no
// mounted volume needs it.
func (m *Manager) nextRepublish(driver string) (next time.Time, ok bool, err error) {
	all, err := m.toRepublish(driver)
	for _, one := range all {
		if due := m.node.due.of(one.path); !ok || due.Before(next) {
			next, ok = due, true
		}
	}
	return next, ok, err
}

// republish calls NodePublishVolume again for the volumes of a driver that are
// due. Even after a failure, the volume stays mounted: a container uses it. It stays
// due.
func (m *Manager) republish(ctx context.Context, driver string) error {
	all, err := m.toRepublish(driver)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(one republished) bool { return time.Now().Before(m.node.due.of(one.path)) })
	var work []func() error
	for _, one := range all {
		work = append(work, func() error { return m.republishOne(ctx, one) })
	}
	return atOnce(work)
}

func (m *Manager) republishOne(ctx context.Context, one republished) error {
	unlock, err := m.lock(ctx, "volume "+one.use)
	if err != nil {
		return err
	}
	defer unlock()
	use, err := m.useNamed(one.use)
	if err != nil || use == nil || use.Targets[one.path].Phase != store.PhaseDone {
		return err
	}
	toMount, err := m.resolvePublished(use, one)
	if err != nil {
		return err
	}
	if toMount == nil { // the pod is going: the next round suffices
		m.node.due.done(one.path)
		return nil
	}
	if err := m.callAgain(ctx, *toMount); err != nil {
		if errors.Is(err, plugins.ErrNotRegistered) {
			return err
		}
		m.recordEventf(toMount.podRef(), true, "FailedMount",
			"volume %q: it stays mounted, but its driver could not publish it again: %v", toMount.volumeName, err)
		return fmt.Errorf("%s: publish again: %w", toMount.label, err)
	}
	m.node.due.done(one.path)
	return nil
}

// resolvePublished resolves the volume of a published target again; nil if its pod
// is going.
func (m *Manager) resolvePublished(use *store.VolumeUse, one republished) (*volumeToMount, error) {
	pod, err := m.podNamed(one.target.Pod)
	if err != nil || pod == nil || pod.UID != one.target.PodUID || pod.DeletionTimestamp != nil {
		return nil, err
	}
	for i := range pod.Spec.Volumes {
		if volume := &pod.Spec.Volumes[i]; volume.Name == one.target.VolumeName {
			toMount, err := m.resolveVolume(pod, volume)
			if err != nil {
				return nil, err
			}
			*toMount.use, toMount.selinux = *use, one.target.SELinuxLabel
			return &toMount, nil
		}
	}
	return nil, nil
}

func (m *Manager) callAgain(ctx context.Context, toMount volumeToMount) error {
	request, err := m.publishRequest(ctx, toMount)
	if err != nil {
		return err
	}
	return m.callPublish(ctx, toMount, request)
}

// republishers are the drivers whose CSIDriver objects have requiresRepublish.
type republishers struct {
	mu    sync.Mutex
	names map[string]bool
}

func (r *republishers) set(driver string, desired bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.names == nil {
		r.names = map[string]bool{}
	}
	if delete(r.names, driver); desired {
		r.names[driver] = true
	}
}

func (r *republishers) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.names))
}

// republishController has a key for each driver that asks for it, so that a hung driver
// delays no other.
func (m *Manager) republishController() reconcile.Controller {
	return reconcile.Controller{
		Name:      republications,
		Partition: alone,
		All: func(tx *store.Tx) ([]string, error) {
			objects, err := tx.Drivers().All()
			for _, object := range objects {
				m.node.republishers.set(object.Name, requiresRepublish(object))
			}
			return m.node.republishers.all(), err
		},
		Keys: func(change store.Change) []string {
			switch change.Kind.Kind {
			case "Pod": // one of its volumes may be the first that is mounted
				return m.node.republishers.all()
			case "CSIDriver":
				object, _ := m.objectOf(change).(*storagev1.CSIDriver)
				m.node.republishers.set(change.Key, !change.Deleted && requiresRepublish(object))
				return []string{change.Key}
			}
			return nil
		},
		Do: func(ctx context.Context, driver string) (time.Duration, error) {
			if err := m.as(ctx).republish(ctx, driver); err != nil {
				return 0, err
			}
			next, desired, err := m.nextRepublish(driver)
			if err != nil || !desired {
				return 0, err
			}
			return max(time.Until(next), reconcile.FirstPause), nil
		},
	}
}
