package volumes

import (
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func (m *Manager) view(read func(*store.Tx) error) error { return m.options.Store.View(read) }
func (m *Manager) update(change func(*store.Tx) error) error {
	return m.options.Store.UpdateAs(m.writer, change)
}

func (m *Manager) claimOf(key string) (*corev1.PersistentVolumeClaim, error) {
	return load(m, (*store.Tx).Claims, key)
}

func (m *Manager) volumeOf(name string) (*corev1.PersistentVolume, error) {
	return load(m, (*store.Tx).Volumes, name)
}

func (m *Manager) classOf(name string) (*storagev1.StorageClass, error) {
	return load(m, (*store.Tx).Classes, name)
}

func (m *Manager) attributesClassOf(name string) (*storagev1.VolumeAttributesClass, error) {
	return load(m, (*store.Tx).AttributesClasses, name)
}

func (m *Manager) driverOf(name string) (*storagev1.CSIDriver, error) {
	return load(m, (*store.Tx).Drivers, name)
}

func (m *Manager) snapshotOf(key string) (*snapshotv1.VolumeSnapshot, error) {
	return load(m, (*store.Tx).Snapshots, key)
}

func (m *Manager) contentOf(name string) (*snapshotv1.VolumeSnapshotContent, error) {
	return load(m, (*store.Tx).SnapshotContents, name)
}

func (m *Manager) podNamed(key string) (*corev1.Pod, error) { return load(m, (*store.Tx).Pods, key) }

func (m *Manager) intentOf(claim types.UID) (*store.Provisioning, error) {
	return load(m, (*store.Tx).Provisionings, string(claim))
}

func (m *Manager) useNamed(name string) (*store.VolumeUse, error) {
	return load(m, (*store.Tx).Uses, name)
}

func (m *Manager) editClaim(pvc *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	return edit(m, (*store.Tx).Claims, pvc, change)
}

func (m *Manager) editVolume(pv *corev1.PersistentVolume, change func(*corev1.PersistentVolume)) error {
	return edit(m, (*store.Tx).Volumes, pv, change)
}

func (m *Manager) editSnapshot(snapshot *snapshotv1.VolumeSnapshot, change func(*snapshotv1.VolumeSnapshot)) error {
	return edit(m, (*store.Tx).Snapshots, snapshot, change)
}

func (m *Manager) editContent(
	content *snapshotv1.VolumeSnapshotContent, change func(*snapshotv1.VolumeSnapshotContent),
) error {
	return edit(m, (*store.Tx).SnapshotContents, content, change)
}

// load reads one object; nil if it does not exist.
func load[T any](m *Manager, table func(*store.Tx) store.Table[T], key string) (object *T, err error) {
	err = m.view(func(tx *store.Tx) error {
		object, err = table(tx).Get(key)
		return err
	})
	return object, err
}

// edit changes one object, unless it was deleted or replaced since it was read.
func edit[T any, O interface {
	*T
	store.Object
}](m *Manager, table func(*store.Tx) store.Table[T], object O, change func(O)) error {
	key := store.KeyOf(object)
	return recording(m.update(func(tx *store.Tx) error {
		current, err := table(tx).Get(key)
		if err != nil || current == nil || O(current).GetUID() != object.GetUID() {
			return err
		}
		change(current)
		return table(tx).Put(key, current)
	}))
}

// bound is a claim with its volume, nil while it has none.
type bound struct {
	claim  *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

// ErrNoClaim means that a claim does not exist.
var ErrNoClaim = errors.New("the claim does not exist")

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
	case pvc.DeletionTimestamp != nil,
		pvc.Status.Phase != corev1.ClaimBound || volume.Status.Phase != corev1.VolumeBound:
		return bound{}, nil
	case volume.Spec.ClaimRef == nil || volume.Spec.ClaimRef.UID != pvc.UID:
		return bound{}, nil
	}
	return found, nil
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
