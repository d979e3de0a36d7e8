// Package volumes creates volumes for claims and mounts them for pods. It does the work of the
// external-provisioner, the attach/detach controller and the kubelet's volume
// manager of a cluster. Each step of each volume is recorded
// durably before the driver is called and after it answered, with the ID of the
// boot. Adopt takes over the volumes that an earlier process left in use.
//
// It speaks to drivers through package csi/client only, and takes the rules from package
// claim.
package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Drivers finds the instance of a driver that serves calls now.
type Drivers interface {
	Driver(name string) (*plugins.Driver, error)
}

// Options of a Manager. Store, Drivers and Paths are required.
type Options struct {
	Store   *store.Store
	Drivers Drivers
	Paths   claim.Paths
	// BootID is of the running boot.
	BootID string
	// Observe is called for each step, from several goroutines at once; it must
	// not block.
	Observe    func(Event)
	Logger     *slog.Logger
	Failpoints *failpoint.Set
	// NodeName is this machine's name in CSINode and VolumeAttachment
	// objects, and in the label kubernetes.io/hostname; the machine's own name if
	// empty.
	NodeName string
	// Record is called for what a cluster would show as events. It must not block.
	Record func(journal.Notice)
}

// ErrWaiting means that nothing failed, and that the call must wait until
// another object changes. The text names it.
var ErrWaiting = errors.New("waiting")

// Manager works on the volumes of one host. It is safe for concurrent use: one
// volume is worked on by one call at a time, different volumes in parallel.
type Manager struct {
	*shared
	// writer is the call of a controller whose writes these are, if there is one.
	writer *store.Writer
}

// shared is the state that all calls share.
type shared struct {
	options Options
	logger  *slog.Logger
	node    nodeSide

	locks concurrency.Queue

	index      index
	waits      waits
	partitions partitions
	said       memories[string]
	// reasons are the errors of the last calls for objects, also ErrWaiting.
	reasons memories[error]
	polls   memories[poll]

	expansions, modifications histories

	inspections concurrency.Calls[struct{}] // of filesystems, by path
}

// New makes a Manager.
func New(options Options) *Manager {
	if options.Observe == nil {
		options.Observe = func(Event) {}
	}
	if options.Record == nil {
		options.Record = func(journal.Notice) {}
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Manager{shared: &shared{options: options, logger: options.Logger, index: index{store: options.Store}}}
}

// as returns the Manager that writes as the context's writer: a controller's own
// writes are distinguished from the changes of other calls.
func (m *Manager) as(ctx context.Context) *Manager {
	return &Manager{shared: m.shared, writer: store.WriterOf(ctx)}
}

// lock waits until a key is free. A driver would answer ABORTED, but the
// host would have to repeat the call itself, so it queues callers instead.
func (m *Manager) lock(ctx context.Context, key string) (unlock func(), err error) {
	return m.locks.Lock(ctx, key)
}

func (m *Manager) view(read func(*store.Tx) error) error { return m.options.Store.View(read) }
func (m *Manager) update(change func(*store.Tx) error) error {
	return m.options.Store.UpdateAs(m.writer, change)
}

func (m *Manager) csiDriver(name string) (driver *storagev1.CSIDriver, err error) {
	err = m.view(func(tx *store.Tx) error {
		driver, err = tx.Drivers().Get(name)
		return err
	})
	return driver, err
}

// bound is a claim with its volume, nil while it has none.
type bound struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// ErrNoClaim means that there is no claim of a name.
var ErrNoClaim = errors.New("there is no such claim")

func (m *Manager) boundClaim(key string) (found bound, err error) {
	err = m.view(func(tx *store.Tx) error {
		if found.claim, err = tx.Claims().Get(key); err != nil {
			return err
		}
		if found.claim == nil {
			return fmt.Errorf("PersistentVolumeClaim %q: %w", key, ErrNoClaim)
		}
		if found.claim.Spec.VolumeName == "" {
			return nil
		}
		found.volume, err = tx.Volumes().Get(found.claim.Spec.VolumeName)
		return err
	})
	return found, err
}

// changeable returns a claim whose volume may be expanded and modified: the two are
// bound to each other, and the claim is not being deleted. Otherwise, it returns
// nothing.
func (m *Manager) changeable(key string) (bound, error) {
	found, err := m.boundClaim(key)
	switch pvc, volume := found.claim, found.volume; {
	case errors.Is(err, ErrNoClaim):
		return bound{}, nil
	case err != nil || volume == nil || volume.Spec.CSI == nil:
		return bound{}, err
	case pvc.DeletionTimestamp != nil || pvc.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound:
		return bound{}, nil
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != pvc.UID:
		return bound{}, nil
	}
	return found, nil
}

// editClaim changes a claim, unless it was deleted or replaced since it was read.
func (m *Manager) editClaim(pvc *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	key := store.Key(pvc.Namespace, pvc.Name)
	return recording(m.update(func(tx *store.Tx) error {
		current, err := tx.Claims().Get(key)
		if err != nil || current == nil || current.UID != pvc.UID {
			return err
		}
		change(current)
		return tx.Claims().Put(key, current)
	}))
}

// editBound changes a claim and its volume in one transaction.
func (m *Manager) editBound(
	found bound, change func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume),
) error {
	key := store.Key(found.claim.Namespace, found.claim.Name)
	return recording(m.update(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		volume, err := tx.Volumes().Get(found.volume.Name)
		if err != nil {
			return err
		}
		if pvc == nil || volume == nil || pvc.UID != found.claim.UID {
			return fmt.Errorf("%s vanished while its volume was changed", claim.Describe(found.claim))
		}
		change(pvc, volume)
		return errors.Join(tx.Claims().Put(key, pvc), tx.Volumes().Put(volume.Name, volume))
	}))
}

// recording marks an error as one of the store.
func recording(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errStore, err)
}
