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

// undo ends an intent whose volume is not needed. Only the repeated call returns
// whether the volume exists, and its ID
// (external-provisioner#486).
func (c *Controller) undo(ctx context.Context, pvc *corev1.PersistentVolumeClaim, known record) (time.Duration, error) {
	uid := known.Volume.Spec.ClaimRef.UID
	left, found, err := c.intents.Reread(ctx, string(uid))
	if err != nil || !found {
		if err == nil { // an administrator knows what became of the volume
			c.end(pvc, known)
		}
		return 0, err
	}
	needed, err := c.neededAfterAll(ctx, pvc, left)
	if needed || err != nil {
		return time.Second, err // the cache is behind
	}
	request, volume, err := c.create(ctx, left, false, c.read(ctx, left))
	if err != nil {
		return c.recordOutcome(ctx, nil, left, err)
	}
	holder, err := c.holder(ctx, volume.GetVolumeId())
	if err != nil {
		return 0, err
	}
	switch lifecycle.AfterCreate(lifecycle.Answer{Claimed: pvc != nil, Usable: true, MaySaved: c.maySaved(left), Holder: holder}) {
	case lifecycle.Leave:
		c.log.InfoContext(ctx, "the volume of a lost claim is left to the PersistentVolume that names it",
			"volume", volume.GetVolumeId(), "claim", left.claimKey(), "persistentvolume", holder.Name)
		c.end(pvc, left)
		return 0, nil
	case lifecycle.Wait:
		return c.recordOutcome(ctx, nil, left, c.holderError(left, volume.GetVolumeId(), holder))
	case lifecycle.Retain:
		if err := c.retain(ctx, pvc, left, request, volume); err != nil {
			return c.recordOutcome(ctx, nil, left, err)
		}
		return 0, nil
	}
	secrets := request.GetSecrets()
	if secrets == nil { // the answer was in memory
		if secrets, err = c.env.Secret(ctx, left.secret()); err != nil {
			return 0, err
		}
	}
	if err := c.hit("undo/answered"); err != nil {
		return 0, err
	}
	wrong := fmt.Errorf("the claim %s of volume %q is gone or does not need it", left.claimKey(), volume.GetVolumeId())
	if err := c.deleteUnsaved(ctx, left, volume.GetVolumeId(), secrets, wrong); err != nil {
		return c.recordOutcome(ctx, nil, left, err)
	}
	if err := c.hit("undo/deleted"); err != nil {
		return 0, err
	}
	c.end(pvc, left)
	c.log.InfoContext(ctx, "the volume of a lost claim is deleted", "volume", volume.GetVolumeId(), "claim", left.claimKey())
	return 0, nil
}

// end removes an intent whose volume does not exist. If its claim still exists,
// provisioning may start again.
func (c *Controller) end(pvc *corev1.PersistentVolumeClaim, left record) {
	uid := left.Volume.Spec.ClaimRef.UID
	c.drop(uid, left)
	if pvc == nil {
		c.progress.forget(uid)
	} else {
		c.claimQueue.Add(string(uid))
	}
}

// neededAfterAll asks the API server itself: what follows cannot be undone.
func (c *Controller) neededAfterAll(ctx context.Context, pvc *corev1.PersistentVolumeClaim, left record) (bool, error) {
	if pvc == nil {
		reference := left.Volume.Spec.ClaimRef
		live, err := c.env.Core.CoreV1().PersistentVolumeClaims(reference.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("is claim %s gone: %w", left.claimKey(), err)
		}
		if err == nil && live.UID == reference.UID {
			return true, nil
		}
	}
	pv, err := c.env.Core.CoreV1().PersistentVolumes().Get(ctx, left.Volume.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("is there a PersistentVolume %q: %w", left.Volume.Name, err)
	case !c.matches(pv, left):
		return false, nil
	}
	c.finish(pvc, left, nil)
	return true, nil
}
