package provision

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// source finds what the claim is made of, and keeps it from going meanwhile. usable are
// the topologies in which the volume can be made of it; none if that is not known.
func (c *Controller) source(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, source claim.SourceRef,
) (from claim.Source, usable []claim.Term, err error) {
	switch source.Kind {
	case claim.SourceClaim:
		from, err = c.sourceClaim(ctx, pvc, source)
		return from, nil, err
	case claim.SourceSnapshot:
		return c.sourceSnapshot(ctx, pvc, source)
	}
	return claim.Source{}, nil, nil
}

func (c *Controller) sourceClaim(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef,
) (claim.Source, error) {
	source, volume, err := c.cloned(ctx, pvc, from)
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
	if _, err = c.checkClone(ctx, pvc, from, source); err != nil {
		return claim.Source{}, err
	}
	return claim.Source{VolumeHandle: volume.Spec.CSI.VolumeHandle}, nil
}

// cloned is the claim to be cloned, with its volume, if it can be now.
func (c *Controller) cloned(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef,
) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	source, err := c.claimNamed(ctx, from.Key())
	if err != nil {
		return nil, nil, err
	}
	volume, err := c.checkClone(ctx, pvc, from, source)
	return source, volume, err
}

func (c *Controller) checkClone(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef, source *corev1.PersistentVolumeClaim,
) (volume *corev1.PersistentVolume, err error) {
	if source != nil {
		if volume, err = c.volumeNamed(ctx, source.Spec.VolumeName); err != nil {
			return nil, err
		}
	}
	if err := lifecycle.CheckClone(pvc, from, source, volume, c.env.Driver); err != nil {
		return nil, waiting{err}
	}
	return volume, nil
}

func (c *Controller) sourceSnapshot(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef,
) (claim.Source, []claim.Term, error) {
	snapshot, content, err := c.restored(ctx, pvc, from)
	if err != nil {
		return claim.Source{}, nil, err
	}
	usable, err := claim.SnapshotTerms(content.Annotations)
	if err != nil {
		return claim.Source{}, nil, waitFor("%s: VolumeSnapshotContent %q of the source: %w", claim.Describe(pvc), content.Name, err)
	}
	if !c.hasSnapshot(content) {
		return claim.Source{}, nil, c.elsewhere(pvc, from.String())
	}
	if snapshot, err = c.protectSnapshot(ctx, snapshot); err != nil {
		return claim.Source{}, nil, err
	}
	if err := checkSnapshot(pvc, from, snapshot); err != nil {
		return claim.Source{}, nil, err
	}
	return claim.Source{SnapshotHandle: *content.Status.SnapshotHandle}, usable, nil
}

// restored is the snapshot to be restored, with its content, if it can be now.
func (c *Controller) restored(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, from claim.SourceRef,
) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, error) {
	if !c.options.Snapshots {
		return nil, nil, fmt.Errorf("%s: snapshots are not followed; start the provisioner with them", claim.Describe(pvc))
	}
	snapshot, err := c.snapshotNamed(ctx, from.Key())
	if err != nil {
		return nil, nil, err
	}
	if err := checkSnapshot(pvc, from, snapshot); err != nil {
		return nil, nil, err
	}
	content, err := c.content(ctx, pvc, snapshot)
	return snapshot, content, err
}

func checkSnapshot(
	pvc *corev1.PersistentVolumeClaim, from claim.SourceRef, snapshot *snapshotv1.VolumeSnapshot,
) error {
	kept := snapshot != nil && has(snapshot.Finalizers, lifecycle.RestoreFinalizer)
	if err := lifecycle.CheckSnapshot(pvc, from, snapshot, kept); err != nil {
		return waiting{err}
	}
	return nil
}

// content reads the snapshot's content live: it is not cached for this.
func (c *Controller) content(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, snapshot *snapshotv1.VolumeSnapshot,
) (*snapshotv1.VolumeSnapshotContent, error) {
	name := lifecycle.BoundContent(snapshot)
	content, err := c.env.Snapshots.SnapshotV1().VolumeSnapshotContents().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		content = nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: read VolumeSnapshotContent %q: %w", claim.Describe(pvc), name, err)
	}
	if err := lifecycle.CheckContent(pvc, snapshot, content, c.env.Driver, c.options.AllowVolumeModeChange); err != nil {
		return nil, waiting{err}
	}
	return content, nil
}
