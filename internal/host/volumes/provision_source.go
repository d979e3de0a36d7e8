package volumes

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Finalizers of what is being copied, those of external-provisioner.
const (
	cloneFinalizer   = "provisioner.storage.kubernetes.io/cloning-protection"
	restoreFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

// allowModeChange on a content lets a claim with another volume mode restore it.
const allowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// source finds what a claim's volume is made of, and what is to be kept
// meanwhile, as resource/key.
func (m *Manager) source(ctx context.Context, pvc *corev1.PersistentVolumeClaim, driver string) (claim.Source, string, error) {
	reference, err := claim.SourceOf(pvc)
	if err != nil || reference.Kind == claim.SourceNone {
		return claim.Source{}, "", err
	}
	key := store.Key(pvc.Namespace, reference.Name)
	if reference.Kind == claim.SourceSnapshot {
		source, err := m.sourceSnapshot(pvc, key, driver)
		return source, dependency(snapshotResource, key), err
	}
	source, err := m.sourceClaim(ctx, pvc, key, driver)
	return source, dependency(claimResource, key), err
}

func (m *Manager) sourceClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim, key, driver string) (claim.Source, error) {
	if key == store.Key(pvc.Namespace, pvc.Name) {
		return claim.Source{}, fmt.Errorf("%s: spec.dataSource: a claim cannot be a copy of itself", claim.Describe(pvc))
	}
	if m.options.Patience > 0 { // nobody else makes the source
		if err := m.EnsureClaim(ctx, key); err != nil {
			return claim.Source{}, fmt.Errorf("%s: spec.dataSource: %w", claim.Describe(pvc), err)
		}
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
	switch {
	case err != nil:
		return claim.Source{}, err
	case found.claim == nil:
		return claim.Source{}, waitFor(on, "", "%s: the source, PersistentVolumeClaim %q, does not exist", claim.Describe(pvc), key)
	}
	if err := claim.CheckClone(pvc, found.claim, found.volume, driver); err != nil {
		return claim.Source{}, waitFor(on, "", "%w", err)
	}
	if reference := found.volume.Spec.ClaimRef; reference == nil || reference.UID != found.claim.UID {
		return claim.Source{}, waitFor(on, "", "%s: PersistentVolume %q is not bound to the source, %s", claim.Describe(pvc), found.volume.Name, claim.Describe(found.claim))
	}
	return claim.Source{VolumeHandle: found.volume.Spec.CSI.VolumeHandle}, nil
}

func (m *Manager) sourceSnapshot(pvc *corev1.PersistentVolumeClaim, key, driver string) (claim.Source, error) {
	var (
		snapshot *snapshotv1.VolumeSnapshot
		content  *snapshotv1.VolumeSnapshotContent
	)
	err := m.view(func(tx *store.Tx) (err error) {
		if snapshot, err = tx.Snapshots().Get(key); err != nil || snapshot == nil || boundContent(snapshot) == "" {
			return err
		}
		content, err = tx.SnapshotContents().Get(boundContent(snapshot))
		return err
	})
	if err != nil {
		return claim.Source{}, err
	}
	if problem := unfitSnapshot(pvc, snapshot); problem != "" {
		return claim.Source{}, waitFor(dependencies(dependency(snapshotResource, key)), "",
			"%s: the source, VolumeSnapshot %q, %s", claim.Describe(pvc), key, problem)
	}
	if problem := unfitContent(pvc, snapshot, content, driver); problem != "" {
		return claim.Source{}, waitFor(dependencies(dependency(contentResource, boundContent(snapshot))), "",
			"%s: VolumeSnapshotContent %q of the source %s", claim.Describe(pvc), boundContent(snapshot), problem)
	}
	return claim.Source{SnapshotHandle: *content.Status.SnapshotHandle}, nil
}

func boundContent(snapshot *snapshotv1.VolumeSnapshot) string {
	if snapshot.Status == nil || snapshot.Status.BoundVolumeSnapshotContentName == nil {
		return ""
	}
	return *snapshot.Status.BoundVolumeSnapshotContentName
}

// unfitSnapshot says why a snapshot cannot be restored now, by the user's object.
func unfitSnapshot(pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot) string {
	switch {
	case snapshot == nil:
		return "does not exist"
	case snapshot.DeletionTimestamp != nil:
		return "is being deleted"
	case boundContent(snapshot) == "":
		return "is not bound to a VolumeSnapshotContent yet"
	case !isReady(snapshot):
		return "is not ready yet"
	case snapshot.Status.RestoreSize != nil && snapshot.Status.RestoreSize.Cmp(pvc.Spec.Resources.Requests[corev1.ResourceStorage]) > 0:
		return fmt.Sprintf("needs %s, more than the claim's spec.resources.requests.storage", snapshot.Status.RestoreSize)
	}
	return ""
}

// unfitContent says the same by the content.
func unfitContent(pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent, driver string) string {
	if content == nil {
		return "does not exist"
	}
	reference, status := content.Spec.VolumeSnapshotRef, content.Status
	switch {
	case reference.Namespace != snapshot.Namespace || reference.Name != snapshot.Name || reference.UID != snapshot.UID:
		return "belongs to another VolumeSnapshot"
	case content.Spec.Driver != driver:
		return fmt.Sprintf("is of driver %s, not %s", content.Spec.Driver, driver)
	case status == nil || status.ReadyToUse == nil || !*status.ReadyToUse:
		return "is not ready yet"
	case status.SnapshotHandle == nil || *status.SnapshotHandle == "":
		return "has no snapshotHandle"
	case changesMode(pvc, content):
		return fmt.Sprintf("has volume mode %s, another than the claim; its annotation %s=true would allow that", *content.Spec.SourceVolumeMode, allowModeChange)
	}
	return ""
}

// changesMode tells whether a restore would turn a filesystem into a device, or
// back, which lets a user read or forge what only the kernel may (KEP 3141).
func changesMode(pvc *corev1.PersistentVolumeClaim, content *snapshotv1.VolumeSnapshotContent) bool {
	mode := content.Spec.SourceVolumeMode
	if mode == nil || content.Annotations[allowModeChange] == "true" {
		return false
	}
	return (*mode == corev1.PersistentVolumeBlock) != claim.IsBlock(pvc.Spec.VolumeMode)
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
	resource, key, _ := cut(source)
	if resource == snapshotResource {
		snapshot, err := tx.Snapshots().Get(key)
		switch {
		case err != nil:
			return err
		case snapshot == nil:
			return change(nil, restoreFinalizer)
		}
		if err := change(snapshot, restoreFinalizer); err != nil {
			return err
		}
		return tx.Snapshots().Put(key, snapshot)
	}
	pvc, err := tx.Claims().Get(key)
	switch {
	case err != nil:
		return err
	case pvc == nil:
		return change(nil, cloneFinalizer)
	}
	if err := change(pvc, cloneFinalizer); err != nil {
		return err
	}
	return tx.Claims().Put(key, pvc)
}
