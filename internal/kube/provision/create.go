package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// values returns the values of the intent's secret for one call.
type values func() (map[string]string, error)

func (c *Controller) read(ctx context.Context, intent volumeIntent) values {
	return func() (map[string]string, error) { return c.env.Secret(ctx, intent.secret()) }
}

// refusal is an error with its outcome. The outcome of any other error is
// lifecycle.Retry.
type refusal struct {
	error
	outcome lifecycle.Outcome
}

func (r refusal) Unwrap() error { return r.error }

// resume completes or undoes an intent: after a failed attempt, or one of an earlier
// process.
func (c *Controller) resume(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent,
) (time.Duration, error) {
	uid := intent.Volume.Spec.ClaimRef.UID
	if intent.Quarantine != "" {
		// An administrator may have removed the intent.
		if _, found, err := c.intents.Reread(ctx, string(uid)); err != nil || !found {
			if err == nil { // an administrator has handled the volume: begin again
				c.drop(uid, intent)
				c.claimQueue.Add(string(uid))
			}
			return 0, err
		}
	}
	if pv, found := c.volumes.Get(intent.Volume.Name); found && c.matches(pv, intent) {
		c.finish(pvc, intent, pv, nil)
		return 0, nil
	}
	if pvc != nil && c.maySaved(intent) {
		// An administrator may have retained the volume and deleted both objects. Saved again
		// for a claim that only the cache has, the volume would be deleted.
		live, err := c.liveClaim(ctx, intent)
		if err != nil {
			return 0, err
		}
		pvc = live
	}
	if ended, err := c.bound(ctx, pvc, intent); ended || err != nil {
		return 0, err
	}
	if owner := c.progress.reserve(uid, intent.Volume.Name); owner != uid {
		return c.dropDuplicate(ctx, intent, owner)
	}
	intent, stored, err := c.addInstance(ctx, intent)
	if err != nil {
		return 0, err
	}
	if !stored {
		c.end(pvc, intent)
		return 0, nil
	}
	if c.notNeeded(pvc, intent) {
		return c.undo(ctx, pvc, intent)
	}
	if pvc != nil {
		defer c.announce(pvc)()
	}
	return c.createAndSave(ctx, pvc, intent, time.Now(), c.read(ctx, intent))
}

// matches reports whether a PersistentVolume is the one of the intent.
func (c *Controller) matches(pv *corev1.PersistentVolume, intent volumeIntent) bool {
	reference, source := pv.Spec.ClaimRef, pv.Spec.CSI
	if reference == nil || source == nil || reference.UID != intent.Volume.Spec.ClaimRef.UID || source.Driver != intent.Volume.Spec.CSI.Driver {
		return false
	}
	if made := c.progress.of(reference.UID).made; made != nil {
		return made.GetVolumeId() == source.VolumeHandle && c.env.Scope.OwnsVolume(pv)
	}
	// Without the driver's answer, only the identity of the process in the template shows
	// that the object was not created by hand for another volume.
	return intent.identity() == source.VolumeAttributes[claim.IdentityAttribute] && c.env.Scope.OwnsVolume(pv)
}

// notNeeded reports whether the intent's volume is to be deleted. With policy Retain
// the volume outlives the claim, as a released PersistentVolume.
func (c *Controller) notNeeded(pvc *corev1.PersistentVolumeClaim, intent volumeIntent) bool {
	switch {
	case pvc == nil:
		return intent.Volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete
	case pvc.Spec.VolumeName != "":
		return true // resume has not found the PersistentVolume of this intent
	}
	if c.maySaved(intent) { // the claim may be bound to it at any time
		return false
	}
	node := selectedNode(pvc)
	return !c.env.Scope.Central() && node != "" && node != c.env.Scope.Node
}

// createAndSave creates the volume of an intent and its PersistentVolume. The claim is
// nil if it is gone.
func (c *Controller) createAndSave(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent, began time.Time, secrets values,
) (after time.Duration, err error) {
	ctx, end := c.attemptSpan(ctx, intent)
	defer func() { end(err) }()
	request, volume, err := c.create(ctx, intent, pvc != nil, secrets)
	if err == nil {
		err = c.accept(ctx, intent, pvc != nil, request, volume)
	}
	if err == nil {
		intent, err = c.markSaving(ctx, intent)
	}
	var saved *corev1.PersistentVolume
	if err == nil {
		saved, err = c.save(ctx, intent, request, volume)
	}
	c.metrics.provision(intent.Volume.Spec.StorageClassName, sourceKind(pvc), began, err)
	if err != nil {
		return c.recordOutcome(ctx, pvc, intent, err)
	}
	if err := c.hit("create/saved"); err != nil {
		return 0, err
	}
	c.finish(pvc, intent, saved, volume)
	return 0, c.hit("create/dropped")
}

// create returns the driver's answer to the request of an intent: from memory if only
// the PersistentVolume is missing, else by a call. Its error may be a refusal.
// desired reports that the claim still waits for the volume.
func (c *Controller) create(
	ctx context.Context, intent volumeIntent, desired bool, secrets values,
) (*csi.CreateVolumeRequest, *csi.Volume, error) {
	uid := intent.Volume.Spec.ClaimRef.UID
	known := c.progress.of(uid)
	if known.made != nil {
		request, err := intent.request(nil)
		return request, known.made, err
	}
	read, err := secrets()
	if err != nil {
		return nil, nil, fmt.Errorf("secret for CreateVolume: %w", err)
	}
	request, err := intent.request(read)
	if err != nil {
		return nil, nil, err
	}
	calling, cancel := c.env.Call(ctx)
	defer cancel()
	calling, warnings := csiclient.CollectWarnings(calling)
	made, err := c.env.CSI.CreateVolume(calling, request)
	for _, text := range warnings() {
		c.warn(intent.claimStub(), reasonWarning, "the volume differs from its class: %s", text)
	}
	if err != nil {
		return nil, nil, refusal{err, lifecycle.AfterFailedCreate(lifecycle.Creation{
			Call: claim.CallCreate, Copied: request.GetVolumeContentSource() != nil, Repeated: !known.untried,
			Elsewhere: c.sentElsewhere(intent), Desired: desired, Movable: request.GetAccessibilityRequirements() != nil && intent.Node != "",
		}, err)}
	}
	c.progress.note(uid, func(s *step) { s.untried = false })
	if err := c.hit("create/called"); err != nil {
		return nil, nil, err
	}
	if made.GetVolumeId() == "" { // nothing can be saved or deleted
		return nil, nil, claim.CheckAnswer(request, made)
	}
	c.progress.note(uid, func(s *step) { s.made = made })
	return request, made, c.hit("create/answered")
}

// accept checks the driver's answer. A volume that contradicts the request is deleted,
// unless a PersistentVolume names it.
func (c *Controller) accept(
	ctx context.Context, intent volumeIntent, claimed bool, request *csi.CreateVolumeRequest, made *csi.Volume,
) error {
	wrong := errors.Join(claim.CheckAnswer(request, made), claim.CheckAccessibleTopology(request, made))
	if wrong == nil && !c.env.Scope.OwnsVolume(claim.FillVolume(intent.Volume, request, made)) {
		wrong = fmt.Errorf("the driver's answer does not say that volume %q is on node %q: %s",
			made.GetVolumeId(), c.env.Scope.Node, claim.DescribeTopologies(made.GetAccessibleTopology()))
	}
	if wrong == nil && !c.cachedHolder(made.GetVolumeId(), intent) {
		return nil
	}
	holder, err := c.holder(ctx, made.GetVolumeId())
	if err != nil {
		return err
	}
	answer := lifecycle.Answer{Desired: true, Claimed: claimed, Usable: wrong == nil, MaySaved: c.maySaved(intent), Holder: holder}
	switch lifecycle.AfterCreate(answer) {
	case lifecycle.Save:
		return nil
	case lifecycle.Wait:
		return c.holderError(intent, made.GetVolumeId(), holder)
	case lifecycle.Leave:
		return refusal{c.holderError(intent, made.GetVolumeId(), holder), lifecycle.Discard}
	case lifecycle.Retain:
		return c.keepUnsaved(wrong, intent, made.GetVolumeId())
	}
	return c.deleteUnusable(ctx, intent, made.GetVolumeId(), request.GetSecrets(), wrong, lifecycle.Discard)
}

// deleteUnusable deletes a volume that cannot be used because of wrong. It returns the
// outcome only after the deletion succeeded.
func (c *Controller) deleteUnusable(
	ctx context.Context, intent volumeIntent, handle string, secrets map[string]string, wrong error, then lifecycle.Outcome,
) error {
	holder, err := c.holder(ctx, handle)
	if err != nil {
		return errors.Join(wrong, err)
	}
	if holder.Name != "" {
		return errors.Join(wrong, c.holderError(intent, handle, holder))
	}
	if err := c.deleteUnsaved(ctx, intent, handle, secrets, wrong); err != nil {
		return err
	}
	c.progress.note(intent.Volume.Spec.ClaimRef.UID, func(s *step) { s.made = nil })
	return refusal{wrong, then}
}

// deletionTries is how often, within the time of one call, the volume of an intent
// is deleted.
const deletionTries = 5

// deleteUnsaved deletes a volume that no PersistentVolume names, because of wrong.
// All deletions that an intent leads to end here, and none follows once its
// PersistentVolume may have existed.
func (c *Controller) deleteUnsaved(
	ctx context.Context, intent volumeIntent, handle string, secrets map[string]string, wrong error,
) error {
	if c.maySaved(intent) {
		return c.keepUnsaved(wrong, intent, handle)
	}
	calling, cancel := c.env.Call(ctx)
	defer cancel()
	var err error
	for range deletionTries {
		if err = c.env.CSI.DeleteVolume(calling, &csi.DeleteVolumeRequest{VolumeId: handle, Secrets: secrets}); err == nil {
			return nil
		}
	}
	c.warn(intent.claimStub(), reasonCleanupFailed,
		"error cleaning up volume %q for claim %q: %v", handle, intent.claimKey(), err)
	return fmt.Errorf("%w; and volume %q could not be deleted: %w", wrong, handle, err)
}

// recordOutcome writes the event of a failed attempt, and keeps or discards its intent.
func (c *Controller) recordOutcome(
	ctx context.Context, pvc *corev1.PersistentVolumeClaim, intent volumeIntent, err error,
) (time.Duration, error) {
	uid, class := intent.Volume.Spec.ClaimRef.UID, intent.Volume.Spec.StorageClassName
	shown := pvc
	if shown == nil {
		shown = intent.claimStub()
	}
	if ctx.Err() != nil {
		return 0, err // the process ends: the claim has not failed
	}
	_ = c.failed(shown, class, err)
	then := lifecycle.Retry
	if refused := (refusal{}); errors.As(err, &refused) {
		then = refused.outcome
		if c.options.Observer != nil {
			c.options.Observer.Failed(class)
		}
	}
	switch then {
	case lifecycle.Retry:
		c.progress.note(uid, func(s *step) { s.untried = false })
		return 0, err
	case lifecycle.Quarantine:
		return c.quarantine(ctx, intent, err)
	}
	c.drop(uid, intent)
	c.endTrace(intent, err) // another attempt has an intent of its own
	switch then {
	case lifecycle.RetryLater:
		c.progress.note(uid, func(s *step) { s.slow = time.Now().Add(c.options.SlowRetry) })
		return c.options.SlowRetry, nil
	case lifecycle.Reschedule:
		c.progress.note(uid, func(s *step) { s.skipUntil = time.Now().Add(recheckPeriod) })
		if pvc != nil {
			return 0, c.reschedule(ctx, pvc, intent.Node)
		}
	}
	if pvc == nil { // nothing exists, and nothing is desired
		c.progress.forget(uid)
		return 0, nil
	}
	return 0, err
}

// quarantine keeps the intent of a volume that may exist and that the driver can
// neither create again nor name, or that lacks a PersistentVolume and may hold data.
func (c *Controller) quarantine(ctx context.Context, intent volumeIntent, err error) (time.Duration, error) {
	if intent.Quarantine == err.Error() {
		return c.options.SlowRetry, nil
	}
	uid := intent.Volume.Spec.ClaimRef.UID
	current, found, rereadErr := c.intents.Reread(ctx, string(uid)) // another process may have marked it
	switch {
	case rereadErr != nil:
		return 0, rereadErr
	case !found: // an administrator has handled the volume
		c.drop(uid, intent)
		c.claimQueue.Add(string(uid))
		return 0, nil
	}
	current.Quarantine, current.Unsaved = err.Error(), current.Unsaved && intent.Unsaved
	if c.progress.of(uid).made == nil { // else the error names the next action
		c.warn(intent.claimStub(), reasonCleanupFailed,
			"volume %q may have been made, and the driver cannot report it; look for it in the storage, then remove entry %s "+
				"of the ConfigMaps labelled holdfast.dev/intents in namespace %s",
			intent.Volume.Name, uid, c.env.Intents)
	}
	if _, err := c.intents.Put(ctx, string(uid), current); err != nil {
		return 0, err
	}
	return c.options.SlowRetry, nil
}

// drop removes an intent whose volume does not exist.
func (c *Controller) drop(uid types.UID, intent volumeIntent) {
	c.intents.Remove(string(uid))
	c.progress.release(uid)
	c.progress.note(uid, func(s *step) { s.made, s.untried, s.refused = nil, false, false })
	if intent.Source != "" {
		c.sourceQueue.Add(intent.Source)
	}
}

// finish removes an intent whose PersistentVolume was created, or was found. The volume is nil if
// another process had made it.
func (c *Controller) finish(
	pvc *corev1.PersistentVolumeClaim, intent volumeIntent, saved *corev1.PersistentVolume, volume *csi.Volume,
) {
	uid := intent.Volume.Spec.ClaimRef.UID
	c.drop(uid, intent)
	if pvc == nil || pvc.Spec.VolumeName != "" {
		c.progress.forget(uid)
		c.endTrace(intent, nil)
	} else {
		c.progress.note(uid, func(s *step) {
			*s = step{updated: s.updated, asked: s.asked, saving: true, saved: saved.ResourceVersion, unbound: c.unboundTrace(intent)}
		})
		c.claimQueue.AddAfter(string(uid), c.options.CacheLag) // no event may tell that it went: isGone
	}
	if volume == nil {
		return
	}
	if pvc != nil {
		c.info(pvc, reasonSucceeded, "Successfully provisioned volume %s", intent.Volume.Name)
	}
	if c.options.Observer != nil {
		c.options.Observer.Created(intent.Volume.Spec.StorageClassName, volume.GetAccessibleTopology())
	}
}
