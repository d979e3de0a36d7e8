package lifecycle

import (
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/claim/grant"
)

// AllowModeChangeAnnotation on a VolumeSnapshotContent, "true", lets a claim with
// another volume mode restore it.
const AllowModeChangeAnnotation = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// Finalizers of the sources of volumes, with external-provisioner's names.
const (
	CloneFinalizer   = "provisioner.storage.kubernetes.io/cloning-protection"
	RestoreFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

// CheckGrant returns an error if a claim's source is in another namespace, and no
// ReferenceGrant of that namespace allows its use. It must precede every lookup of the
// source: the error does not reveal whether the source exists. grants are those of the
// source's namespace at least.
func CheckGrant(pvc *corev1.PersistentVolumeClaim, source claim.SourceRef, grants []*grant.ReferenceGrant) error {
	if source.Kind == claim.SourceNone || source.Namespace == pvc.Namespace ||
		slices.ContainsFunc(grants, func(g *grant.ReferenceGrant) bool { return source.GrantedBy(g, pvc.Namespace) }) {
		return nil
	}
	return fmt.Errorf("%s: no ReferenceGrant in namespace %q lets claims of namespace %q use the source, %s; "+
		"create one there", claim.Describe(pvc), source.Namespace, pvc.Namespace, source)
}

// CheckClone returns an error if a claim cannot be cloned from another one now. It
// checks in external-provisioner's order. source and its volume may be nil.
func CheckClone(
	pvc *corev1.PersistentVolumeClaim, from claim.SourceRef, source *corev1.PersistentVolumeClaim,
	volume *corev1.PersistentVolume, driver string,
) error {
	fail := func(format string, arguments ...any) error {
		return fmt.Errorf("%s: %s", claim.Describe(pvc), fmt.Sprintf(format, arguments...))
	}
	switch {
	case source == nil:
		return fail("the source, %s, does not exist", from)
	case source.DeletionTimestamp != nil:
		return fail("the source, %s, is being deleted", claim.Describe(source))
	case volume == nil || source.Status.Phase != corev1.ClaimBound:
		return fail("the source, %s, has no volume yet", claim.Describe(source))
	case volume.Spec.CSI == nil || volume.Spec.CSI.Driver != driver:
		return fail("the source, %s, is a volume of another driver than %s", claim.Describe(source), driver)
	case claim.IsBlock(pvc.Spec.VolumeMode) != claim.IsBlock(volume.Spec.VolumeMode):
		return fail("spec.volumeMode differs from the source's, %s", claim.Describe(source))
	case source.Spec.StorageClassName == nil:
		return fail("the source, %s, names no StorageClass", claim.Describe(source))
	}
	desired, has := pvc.Spec.Resources.Requests[corev1.ResourceStorage], source.Spec.Resources.Requests[corev1.ResourceStorage]
	reference := volume.Spec.ClaimRef
	switch {
	case desired.Cmp(has) < 0:
		return fail("spec.resources.requests.storage: %s is less than the source's %s", desired.String(), has.String())
	case reference == nil || reference.UID != source.UID || reference.Namespace != source.Namespace || reference.Name != source.Name:
		return fail("PersistentVolume %q is not bound to the source, %s", volume.Name, claim.Describe(source))
	case volume.Status.Phase != corev1.VolumeBound:
		return fail("PersistentVolume %q of the source is %s, not Bound", volume.Name, volume.Status.Phase)
	}
	return nil
}

// CheckSnapshot returns an error if the VolumeSnapshot does not allow its restore to a
// claim now. snapshot may be nil. kept reports that it has a finalizer for this restore,
// which began before the VolumeSnapshot was deleted.
func CheckSnapshot(
	pvc *corev1.PersistentVolumeClaim, from claim.SourceRef, snapshot *snapshotv1.VolumeSnapshot, kept bool,
) error {
	fail := func(format string, arguments ...any) error {
		return fmt.Errorf("%s: the source, %s, %s", claim.Describe(pvc), from, fmt.Sprintf(format, arguments...))
	}
	switch {
	case snapshot == nil:
		return fail("does not exist")
	case snapshot.DeletionTimestamp != nil && !kept:
		return fail("is being deleted")
	case BoundContent(snapshot) == "":
		return fail("is not bound to a VolumeSnapshotContent yet")
	case snapshot.Status.ReadyToUse == nil || !*snapshot.Status.ReadyToUse:
		return fail("is not ready yet")
	case snapshot.Status.RestoreSize != nil && snapshot.Status.RestoreSize.Cmp(pvc.Spec.Resources.Requests[corev1.ResourceStorage]) > 0:
		return fail("needs %s, more than the claim's spec.resources.requests.storage", snapshot.Status.RestoreSize)
	}
	return nil
}

// BoundContent returns the name of a snapshot's content, "" if it has none.
func BoundContent(snapshot *snapshotv1.VolumeSnapshot) string {
	if snapshot.Status == nil || snapshot.Status.BoundVolumeSnapshotContentName == nil {
		return ""
	}
	return *snapshot.Status.BoundVolumeSnapshotContentName
}

// CheckContent returns an error if the VolumeSnapshotContent does not allow the restore
// of its snapshot to a claim now. content may be nil. allowModeChange permits any
// volume mode.
func CheckContent(
	pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent,
	driver string, allowModeChange bool,
) error {
	fail := func(format string, arguments ...any) error {
		return fmt.Errorf("%s: VolumeSnapshotContent %q of the source %s",
			claim.Describe(pvc), BoundContent(snapshot), fmt.Sprintf(format, arguments...))
	}
	if content == nil {
		return fail("does not exist")
	}
	reference, status := content.Spec.VolumeSnapshotRef, content.Status
	switch {
	case reference.Namespace != snapshot.Namespace || reference.Name != snapshot.Name || reference.UID != snapshot.UID:
		return fail("belongs to another VolumeSnapshot")
	case content.Spec.Driver != driver:
		return fail("is of driver %q, not %q", content.Spec.Driver, driver)
	case status == nil || status.ReadyToUse == nil || !*status.ReadyToUse:
		return fail("is not ready yet")
	case status.SnapshotHandle == nil || *status.SnapshotHandle == "":
		return fail("has no snapshotHandle")
	case !allowModeChange && changesMode(pvc, content):
		return fail("has volume mode %s, another than the claim; its annotation %s=true would allow that",
			*content.Spec.SourceVolumeMode, AllowModeChangeAnnotation)
	}
	return nil
}

// changesMode reports whether a restore would turn a filesystem into a device, or
// back, which lets a user read or forge a filesystem that the kernel mounts (KEP 3141).
func changesMode(pvc *corev1.PersistentVolumeClaim, content *snapshotv1.VolumeSnapshotContent) bool {
	mode := content.Spec.SourceVolumeMode
	if mode == nil || content.Annotations[AllowModeChangeAnnotation] == "true" {
		return false
	}
	return (*mode == corev1.PersistentVolumeBlock) != claim.IsBlock(pvc.Spec.VolumeMode)
}
