package volumes

import (
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// source finds what a claim's volume is made of, and what must be kept
// meanwhile, as resource/key.
func (m *Manager) source(pvc *corev1.PersistentVolumeClaim, driver string) (claim.Source, string, error) {
	reference, err := claim.SourceOf(pvc)
	if err != nil || reference.Kind == claim.SourceNone {
		return claim.Source{}, "", err
	}
	key := store.Key(pvc.Namespace, reference.Name)
	if reference.Kind == claim.SourceSnapshot {
		source, err := m.sourceSnapshot(pvc, key, driver)
		return source, dependency(snapshotResource, key), err
	}
	source, err := m.sourceClaim(pvc, key, driver)
	return source, dependency(claimResource, key), err
}

func (m *Manager) sourceClaim(pvc *corev1.PersistentVolumeClaim, key, driver string) (claim.Source, error) {
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
	_, name, _ := splitKey(key)
	if err := lifecycle.CheckClone(pvc, name, found.claim, found.volume, driver); err != nil {
		return claim.Source{}, waitFor(on, "", "%w", err)
	}
	return claim.Source{VolumeHandle: found.volume.Spec.CSI.VolumeHandle}, nil
}

func (m *Manager) sourceSnapshot(pvc *corev1.PersistentVolumeClaim, key, driver string) (claim.Source, error) {
	var (
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
	_, name, _ := splitKey(key)
	if err := lifecycle.CheckSnapshot(pvc, name, snapshot, false); err != nil {
		return claim.Source{}, waitFor(dependencies(dependency(snapshotResource, key)), "", "%w", err)
	}
	if err := lifecycle.CheckContent(pvc, snapshot, content, driver, false); err != nil {
		return claim.Source{}, waitFor(dependencies(dependency(contentResource, lifecycle.BoundContent(snapshot))), "", "%w", err)
	}
	return claim.Source{SnapshotHandle: *content.Status.SnapshotHandle}, nil
}

// keepSource puts the finalizer on a source that is about to be copied.
func keepSource(tx *store.Tx, source string) error {
	return withSource(tx, source, func(object metav1.Object, finalizer string) error {
		if object == nil || object.GetDeletionTimestamp() != nil {
			return fmt.Errorf("the source, %s, is being deleted or gone", source)
		}
		if !slices.Contains(object.GetFinalizers(), finalizer) {
			object.SetFinalizers(append(object.GetFinalizers(), finalizer))
		}
		return nil
	})
}

// releaseSource takes it off when nothing is made of the source any more.
func releaseSource(tx *store.Tx, source string) error {
	records, err := tx.Provisionings().All()
	if err != nil || slices.ContainsFunc(records, func(r *store.Provisioning) bool { return r.Source == source }) {
		return err
	}
	return withSource(tx, source, func(object metav1.Object, finalizer string) error {
		if object != nil {
			object.SetFinalizers(slices.DeleteFunc(object.GetFinalizers(), func(f string) bool { return f == finalizer }))
		}
		return nil
	})
}

// withSource changes a source. The object is nil if it is gone.
func withSource(tx *store.Tx, source string, change func(object metav1.Object, finalizer string) error) error {
	resource, key, _ := splitKey(source)
	if resource == snapshotResource {
		snapshot, err := tx.Snapshots().Get(key)
		switch {
		case err != nil:
			return err
		case snapshot == nil:
			return change(nil, lifecycle.RestoreFinalizer)
		}
		if err := change(snapshot, lifecycle.RestoreFinalizer); err != nil {
			return err
		}
		return tx.Snapshots().Put(key, snapshot)
	}
	pvc, err := tx.Claims().Get(key)
	switch {
	case err != nil:
		return err
	case pvc == nil:
		return change(nil, lifecycle.CloneFinalizer)
	}
	if err := change(pvc, lifecycle.CloneFinalizer); err != nil {
		return err
	}
	return tx.Claims().Put(key, pvc)
}
