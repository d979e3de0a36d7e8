package provision

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// undo ends an intent whose volume is not needed. Only the repeated call returns whether
// the volume exists, and its ID (external-provisioner#486).
func (c *Controller) undo(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, known volumeIntent,
) (after time.Duration, err error) {
	uid := known.Volume.Spec.ClaimRef.UID
	ctx, endSpan := c.attemptSpan(ctx, known)
	defer func() { endSpan(err) }()
	intent, found, err := c.intents.Reread(ctx, string(uid))
	if err != nil || !found {
		if err == nil { // an administrator has handled the volume
			c.end(pvc, known)
		}
		return 0, err
	}
	settled, err := c.settleLive(ctx, pvc, intent)
	if settled || err != nil {
		return time.Second, err // the cache is behind
	}
	request, volume, err := c.create(ctx, intent, false, c.read(ctx, intent))
	if err != nil {
		return c.recordOutcome(ctx, nil, intent, err)
	}
	holder, err := c.holder(ctx, volume.GetVolumeId())
	if err != nil {
		return 0, err
	}
	answer := lifecycle.Answer{Claimed: pvc != nil, Usable: true, MaySaved: c.maySaved(intent), Holder: holder}
	switch lifecycle.AfterCreate(answer) {
	case lifecycle.Leave:
		c.log.InfoContext(ctx, "the volume of a lost claim is kept: a PersistentVolume names it",
			"volume", volume.GetVolumeId(), "claim", intent.claimKey(), "persistentvolume", holder.Name)
		c.end(pvc, intent)
		return 0, nil
	case lifecycle.Wait:
		return c.recordOutcome(ctx, nil, intent, c.holderError(intent, volume.GetVolumeId(), holder))
	case lifecycle.Retain:
		if err := c.retain(ctx, pvc, intent, request, volume); err != nil {
			return c.recordOutcome(ctx, nil, intent, err)
		}
		return 0, nil
	}
	secrets := request.GetSecrets()
	if secrets == nil { // the answer was in memory
		if secrets, err = c.env.Secret(ctx, intent.secret()); err != nil {
			return 0, err
		}
	}
	if err := c.hit("undo/answered"); err != nil {
		return 0, err
	}
	wrong := fmt.Errorf("the claim %s of volume %q is gone or does not need it", intent.claimKey(), volume.GetVolumeId())
	if err := c.deleteUnsaved(ctx, intent, volume.GetVolumeId(), secrets, wrong); err != nil {
		return c.recordOutcome(ctx, nil, intent, err)
	}
	if err := c.hit("undo/deleted"); err != nil {
		return 0, err
	}
	c.end(pvc, intent)
	c.log.InfoContext(ctx, "the volume of a lost claim is deleted",
		"volume", volume.GetVolumeId(), "claim", intent.claimKey())
	return 0, nil
}

// end removes an intent whose volume does not exist. If its claim still exists,
// provisioning may start again.
func (c *Controller) end(pvc *corev1.PersistentVolumeClaim, intent volumeIntent) {
	uid := intent.Volume.Spec.ClaimRef.UID
	c.drop(uid, intent)
	c.endTrace(intent, errNotNeeded)
	if pvc == nil {
		c.progress.forget(uid)
	} else {
		c.claimQueue.Add(string(uid))
	}
}

// settleLive reads the API server, since the deletion that follows cannot be undone. It reports
// whether the claim exists after all, or the intent ends otherwise: it ends one that has a
// PersistentVolume, or that was completed meanwhile.
func (c *Controller) settleLive(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent,
) (bool, error) {
	if pvc == nil {
		if live, err := c.liveClaim(ctx, intent); live != nil || err != nil {
			return live != nil, err
		}
	}
	pv, err := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, intent.Volume.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, kept := c.intents.Get(string(intent.Volume.Spec.ClaimRef.UID))
		if !kept { // this process has deleted the volume with its PersistentVolume, and the intent before that
			c.end(pvc, intent)
		}
		return !kept, nil
	case err != nil:
		return false, fmt.Errorf("is there a PersistentVolume %q: %w", intent.Volume.Name, err)
	case !c.matches(pv, intent):
		return false, nil
	}
	c.finish(pvc, intent, pv, nil)
	return true, nil
}

// liveClaim reads the claim of an intent from the API server; nil if it is gone.
func (c *Controller) liveClaim(ctx context.Context, intent volumeIntent) (*corev1.PersistentVolumeClaim, error) {
	reference := intent.Volume.Spec.ClaimRef
	live, err := c.env.Core.CoreV1().PersistentVolumeClaims(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != reference.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("is claim %s gone: %w", intent.claimKey(), err)
	}
	return live, nil
}
