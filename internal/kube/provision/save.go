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
	"github.com/holdfast-csi/holdfast/internal/tracing"
)

// save creates the PersistentVolume, or finds the one that was created; it returns
// it. As long as that fails, the volume is kept in memory and in the intent.
func (c *Controller) save(
	ctx context.Context, intent volumeIntent, request *csi.CreateVolumeRequest, volume *csi.Volume,
) (_ *corev1.PersistentVolume, err error) {
	ctx, end := tracing.Step(ctx, "create PersistentVolume", tracing.Volume(intent.Volume.Name))
	defer func() { end(err) }()
	pv := claim.FillVolume(intent.Volume, request, volume)
	pv.Status = corev1.PersistentVolumeStatus{} // the server sets it
	if !c.env.Scope.Central() {                 // the affinity is this node's: accept has checked it
		metav1.SetMetaDataLabel(&pv.ObjectMeta, claim.NodeLabel, claim.NodeLabelValue(c.env.Scope.Node))
	}
	made, err := c.env.Core.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if err == nil {
		c.volumes.Wrote(made)
		return made, nil
	}
	wrong := fmt.Errorf("volume %q is made; write its PersistentVolume %q: %w", volume.GetVolumeId(), pv.Name, err)
	if !refused(err) {
		c.mayExist(intent)
		return nil, wrong
	}
	// The client repeats a request after some answers and returns the last one: the
	// first one may have created the object.
	live, readErr := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	switch {
	case readErr == nil && live.DeletionTimestamp == nil && c.matches(live, intent):
		return live, nil
	case readErr == nil:
		return nil, c.named(ctx, intent, pv, live)
	case !apierrors.IsNotFound(readErr):
		c.mayExist(intent)
		return nil, errors.Join(wrong, fmt.Errorf("read PersistentVolume %q: %w", pv.Name, readErr))
	case apierrors.IsAlreadyExists(err): // and deleted since
		c.mayExist(intent)
		return nil, wrong
	case c.maySaved(intent):
		return nil, c.keepUnsaved(wrong, intent, volume.GetVolumeId())
	case apierrors.IsInvalid(err):
		// The driver's answer is not valid in a PersistentVolume, now or later.
		return nil, c.deleteUnsavable(ctx, intent, volume.GetVolumeId(), wrong, lifecycle.RetryLater)
	}
	return nil, wrong
}

// named explains that another object has the name of the PersistentVolume. The name
// alone proves nothing (external-provisioner#1469).
func (c *Controller) named(ctx context.Context, intent volumeIntent, pv, live *corev1.PersistentVolume) error {
	handle := pv.Spec.CSI.VolumeHandle
	switch {
	case live.DeletionTimestamp != nil:
		return fmt.Errorf("volume %q waits for the deletion of an older PersistentVolume %q", handle, pv.Name)
	case !c.env.Scope.OwnsVolume(live) && live.Spec.ClaimRef != nil && live.Spec.ClaimRef.UID == pv.Spec.ClaimRef.UID:
		wrong := fmt.Errorf("another node was first with the volume of %s; that of node %q is not needed",
			intent.claimKey(), c.env.Scope.Node)
		return c.deleteUnsavable(ctx, intent, handle, wrong, lifecycle.Discard)
	}
	// When the object goes, its volume may go with it: the driver is asked again.
	c.progress.note(pv.Spec.ClaimRef.UID, func(s *step) { s.made = nil })
	return fmt.Errorf("PersistentVolume %q exists and is not that of volume %q, which was made for this claim; "+
		"it is of %s; delete or rename it", pv.Name, handle, describeVolume(live))
}

// deleteUnsavable deletes a volume for which no PersistentVolume can be created.
func (c *Controller) deleteUnsavable(
	ctx context.Context, intent volumeIntent, handle string, wrong error, then lifecycle.Outcome,
) error {
	secrets, err := c.env.Secret(ctx, intent.secret())
	if err != nil {
		return errors.Join(wrong, err)
	}
	return c.deleteUnusable(ctx, intent, handle, secrets, wrong, then)
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
