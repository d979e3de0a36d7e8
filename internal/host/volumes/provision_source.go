package volumes

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// source finds the snapshot or claim from which a claim's volume is created, and the key
// of that object, as resource/key.
func (m *Manager) source(
	pvc *corev1.PersistentVolumeClaim, reference claim.SourceRef, driver string,
) (claim.Source, string, error) {
	if reference.Kind == claim.SourceNone {
		return claim.Source{}, "", nil
	}
	key := reference.Key()
	if reference.Kind == claim.SourceSnapshot {
		source, err := m.sourceSnapshot(pvc, reference, driver)
		return source, dependency(snapshotResource, key), err
	}
	source, err := m.sourceClaim(pvc, reference, driver)
	return source, dependency(claimResource, key), err
}

func (m *Manager) sourceClaim(
	pvc *corev1.PersistentVolumeClaim, reference claim.SourceRef, driver string,
) (claim.Source, error) {
	key := reference.Key()
	if key == store.Key(pvc.Namespace, pvc.Name) {
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: a claim cannot be a copy of itself", claim.Describe(pvc))
	}
	on := dependencies(dependency(claimResource, key))
	var found bound
	err := m.view(func(tx *store.Tx) (err error) {
		if found.claim, err = tx.Claims().Get(key); err != nil || found.claim == nil {
			return err
		}
		found.volume, err = tx.Volumes().Get(found.claim.Spec.VolumeName)
		return err
	})
	if err != nil {
		return claim.Source{}, err
	}
	if err := lifecycle.CheckClone(pvc, reference, found.claim, found.volume, driver); err != nil {
		return claim.Source{}, waitFor(on, "", "%w", err)
	}
	return claim.Source{VolumeHandle: found.volume.Spec.CSI.VolumeHandle}, nil
}

func (m *Manager) sourceSnapshot(
	pvc *corev1.PersistentVolumeClaim, reference claim.SourceRef, driver string,
) (claim.Source, error) {
	var (
		key      = reference.Key()
		snapshot *snapshotv1.VolumeSnapshot
		content  *snapshotv1.VolumeSnapshotContent
	)
	err := m.view(func(tx *store.Tx) (err error) {
		if snapshot, err = tx.Snapshots().Get(key); err != nil || snapshot == nil || lifecycle.BoundContent(snapshot) == "" {
			return err
		}
		content, err = tx.SnapshotContents().Get(lifecycle.BoundContent(snapshot))
		return err
	})
	if err != nil {
		return claim.Source{}, err
	}
	if err := lifecycle.CheckSnapshot(pvc, reference, snapshot, false); err != nil {
		return claim.Source{}, waitFor(dependencies(dependency(snapshotResource, key)), "", "%w", err)
	}
	if err := lifecycle.CheckContent(pvc, snapshot, content, driver, false); err != nil {
		on := dependencies(dependency(contentResource, lifecycle.BoundContent(snapshot)))
		return claim.Source{}, waitFor(on, "", "%w", err)
	}
	return claim.Source{SnapshotHandle: *content.Status.SnapshotHandle}, nil
}
