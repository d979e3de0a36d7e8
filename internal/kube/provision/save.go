package provision

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// save makes the PersistentVolume, or finds that it was made. As long as that
// fails, the volume is kept in memory and in the record.
func (c *Controller) save(ctx context.Context, left record, request *csi.CreateVolumeRequest, volume *csi.Volume) error {
	pv := claim.FillVolume(left.Volume, request, volume)
	pv.Status = corev1.PersistentVolumeStatus{} // the server sets it
	made, err := c.env.Core.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err != nil && !definitelyRefused(err) {
		c.progress.note(pv.Spec.ClaimRef.UID, func(s *step) { s.refused = false })
	}
	switch {
	case err == nil:
		c.volumes.Wrote(made)
		return nil
	case apierrors.IsAlreadyExists(err):
		return c.compare(ctx, left, pv)
	case apierrors.IsInvalid(err):
		// What the driver answered can stand in no object, now or later.
		wrong := fmt.Errorf("PersistentVolume %q of volume %q is refused: %w", pv.Name, volume.GetVolumeId(), err)
		if c.maySaved(left) {
			return leftAlone(wrong, left, volume.GetVolumeId())
		}
		return c.giveUp(ctx, left, volume.GetVolumeId(), wrong, lifecycle.RetryLater)
	}
	return fmt.Errorf("volume %q is made; write its PersistentVolume %q: %w", volume.GetVolumeId(), pv.Name, err)
}

// compare tells whether the object that has the name is what was to be saved.
// Its name alone says nothing (external-provisioner#1469).
func (c *Controller) compare(ctx context.Context, left record, pv *corev1.PersistentVolume) error {
	live, err := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("PersistentVolume %q exists; read it: %w", pv.Name, err)
	}
	handle := pv.Spec.CSI.VolumeHandle
	switch {
	case live.DeletionTimestamp != nil:
		return fmt.Errorf("volume %q waits for the end of an older PersistentVolume %q, which is being deleted", handle, pv.Name)
	case c.stands(live, left):
		return nil
	case !c.env.Scope.OwnsVolume(live) && live.Spec.ClaimRef != nil && live.Spec.ClaimRef.UID == pv.Spec.ClaimRef.UID:
		wrong := fmt.Errorf("another node was first with the volume of %s; that of node %q is deleted", left.claimKey(), c.env.Scope.Node)
		return c.giveUp(ctx, left, handle, wrong, lifecycle.Discard)
	}
	// When the object goes, its volume may go with it: the driver is asked again.
	c.progress.note(pv.Spec.ClaimRef.UID, func(s *step) { s.made = nil })
	return fmt.Errorf("PersistentVolume %q exists and is not that of volume %q, which was made for this claim; it stands for %s; delete or rename it",
		pv.Name, handle, describeVolume(live))
}

// giveUp deletes a volume for which no PersistentVolume can stand.
func (c *Controller) giveUp(ctx context.Context, left record, handle string, wrong error, then lifecycle.Outcome) error {
	secrets, err := c.env.Secret(ctx, left.secret())
	if err != nil {
		return errors.Join(wrong, err)
	}
	return c.takeBack(ctx, left, handle, secrets, wrong, then)
}

func describeVolume(pv *corev1.PersistentVolume) string {
	text := "no CSI volume"
	if pv.Spec.CSI != nil {
		text = fmt.Sprintf("volume %q of driver %q", pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.Driver)
	}
	if reference := pv.Spec.ClaimRef; reference != nil {
		text += fmt.Sprintf(" and claim %q", reference.Namespace+"/"+reference.Name)
	}
	return text
}
