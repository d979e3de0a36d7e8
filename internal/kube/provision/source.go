package provision

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// allowModeChange on a content lets a claim with another volume mode restore it.
const allowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// source finds what the claim is made of, and keeps it from going meanwhile.
func (c *Controller) source(ctx context.Context, pvc *corev1.PersistentVolumeClaim, source claim.SourceRef) (claim.Source, error) {
	switch source.Kind {
	case claim.SourceClaim:
		return c.sourceClaim(ctx, pvc, source.Name)
	case claim.SourceSnapshot:
		return c.sourceSnapshot(ctx, pvc, source.Name)
	}
	return claim.Source{}, nil
}

func (c *Controller) sourceClaim(ctx context.Context, pvc *corev1.PersistentVolumeClaim, name string) (claim.Source, error) {
	source, volume, err := c.cloned(pvc, name)
	if err != nil {
		return claim.Source{}, err
	}
	if !c.env.Scope.OwnsVolume(volume) {
		return claim.Source{}, c.elsewhere(pvc, claim.Describe(source))
	}
	if source, err = c.protectClaim(ctx, source); err != nil {
		return claim.Source{}, err
	}
	// The answer is newer than what was checked.
	if _, err = c.checkClone(pvc, source); err != nil {
		return claim.Source{}, err
	}
	return claim.Source{VolumeHandle: volume.Spec.CSI.VolumeHandle}, nil
}

// cloned is the claim to be cloned, with its volume, if it can be now.
func (c *Controller) cloned(pvc *corev1.PersistentVolumeClaim, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	source, found := c.claims.Get(pvc.Namespace + "/" + name)
	if !found {
		return nil, nil, waitFor("%s: the source, PersistentVolumeClaim %q, does not exist", claim.Describe(pvc), pvc.Namespace+"/"+name)
	}
	volume, err := c.checkClone(pvc, source)
	return source, volume, err
}

func (c *Controller) checkClone(pvc, source *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	volume, found := c.volumes.Get(source.Spec.VolumeName)
	if !found {
		volume = nil
	}
	if err := claim.CheckClone(pvc, source, volume, c.env.Driver); err != nil {
		return nil, waiting{err}
	}
	reference := volume.Spec.ClaimRef
	switch {
	case className(source) == "":
		return nil, fmt.Errorf("%s: the source, %s, names no StorageClass", claim.Describe(pvc), claim.Describe(source))
	case reference == nil || reference.UID != source.UID || reference.Namespace != source.Namespace || reference.Name != source.Name:
		return nil, waitFor("%s: PersistentVolume %q is not bound to the source, %s", claim.Describe(pvc), volume.Name, claim.Describe(source))
	case volume.Status.Phase != corev1.VolumeBound:
		return nil, waitFor("%s: PersistentVolume %q of the source is %s, not Bound", claim.Describe(pvc), volume.Name, volume.Status.Phase)
	}
	return volume, nil
}

func (c *Controller) sourceSnapshot(ctx context.Context, pvc *corev1.PersistentVolumeClaim, name string) (claim.Source, error) {
	snapshot, content, err := c.restored(ctx, pvc, name)
	if err != nil {
		return claim.Source{}, err
	}
	if !c.hasSnapshot(content) {
		return claim.Source{}, c.elsewhere(pvc, fmt.Sprintf("VolumeSnapshot %q", pvc.Namespace+"/"+name))
	}
	if snapshot, err = c.protectSnapshot(ctx, snapshot); err != nil {
		return claim.Source{}, err
	}
	if err := c.checkSnapshot(pvc, snapshot); err != nil {
		return claim.Source{}, err
	}
	return claim.Source{SnapshotHandle: *content.Status.SnapshotHandle}, nil
}

// restored is the snapshot to be restored, with its content, if it can be now.
func (c *Controller) restored(ctx context.Context, pvc *corev1.PersistentVolumeClaim, name string) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, error) {
	key := pvc.Namespace + "/" + name
	if c.snapshots == nil {
		return nil, nil, fmt.Errorf("%s: snapshots are not followed; start the provisioner with them", claim.Describe(pvc))
	}
	snapshot, found := c.snapshots.Get(key)
	if !found {
		return nil, nil, waitFor("%s: the source, VolumeSnapshot %q, does not exist", claim.Describe(pvc), key)
	}
	if err := c.checkSnapshot(pvc, snapshot); err != nil {
		return nil, nil, err
	}
	content, err := c.content(ctx, pvc, snapshot)
	return snapshot, content, err
}

// checkSnapshot looks at the VolumeSnapshot alone. One that is being deleted is
// good only for a restore that had begun before.
func (c *Controller) checkSnapshot(pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot) error {
	describe := func(what string) error {
		return waitFor("%s: the source, VolumeSnapshot %q, %s", claim.Describe(pvc), snapshot.Namespace+"/"+snapshot.Name, what)
	}
	status := snapshot.Status
	switch {
	case snapshot.DeletionTimestamp != nil && !has(snapshot.Finalizers, restoreFinalizer):
		return describe("is being deleted")
	case status == nil || status.BoundVolumeSnapshotContentName == nil || *status.BoundVolumeSnapshotContentName == "":
		return describe("is not bound to a VolumeSnapshotContent yet")
	case status.ReadyToUse == nil || !*status.ReadyToUse:
		return describe("is not ready yet")
	case status.RestoreSize != nil && status.RestoreSize.Cmp(pvc.Spec.Resources.Requests[corev1.ResourceStorage]) > 0:
		return describe(fmt.Sprintf("needs %s, more than the claim's spec.resources.requests.storage", status.RestoreSize))
	}
	return nil
}

// content reads the snapshot's content live: it is not cached for this.
func (c *Controller) content(ctx context.Context, pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot) (*snapshotv1.VolumeSnapshotContent, error) {
	name := *snapshot.Status.BoundVolumeSnapshotContentName
	content, err := c.env.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, waitFor("%s: VolumeSnapshotContent %q of the source does not exist", claim.Describe(pvc), name)
		}
		return nil, fmt.Errorf("%s: read VolumeSnapshotContent %q: %w", claim.Describe(pvc), name, err)
	}
	reference, status := content.Spec.VolumeSnapshotRef, content.Status
	fail := func(what string) error {
		return waitFor("%s: VolumeSnapshotContent %q of the source %s", claim.Describe(pvc), name, what)
	}
	switch {
	case reference.Namespace != snapshot.Namespace || reference.Name != snapshot.Name || reference.UID != snapshot.UID:
		return nil, fail("belongs to another VolumeSnapshot")
	case content.Spec.Driver != c.env.Driver:
		return nil, fail(fmt.Sprintf("is of driver %q, not %q", content.Spec.Driver, c.env.Driver))
	case status == nil || status.ReadyToUse == nil || !*status.ReadyToUse:
		return nil, fail("is not ready yet")
	case status.SnapshotHandle == nil || *status.SnapshotHandle == "":
		return nil, fail("has no snapshotHandle")
	case c.changesMode(pvc, content):
		return nil, fail(fmt.Sprintf("has volume mode %s, another than the claim; its annotation %s=true would allow that", *content.Spec.SourceVolumeMode, allowModeChange))
	}
	return content, nil
}

// changesMode tells whether a restore would turn a filesystem into a device, or
// back, which lets a user read or forge what only the kernel may (KEP 3141).
func (c *Controller) changesMode(pvc *corev1.PersistentVolumeClaim, content *snapshotv1.VolumeSnapshotContent) bool {
	mode := content.Spec.SourceVolumeMode
	if mode == nil || c.options.AllowVolumeModeChange || content.Annotations[allowModeChange] == "true" {
		return false
	}
	return (*mode == corev1.PersistentVolumeBlock) != claim.IsBlock(pvc.Spec.VolumeMode)
}
