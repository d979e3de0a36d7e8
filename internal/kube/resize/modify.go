package resize

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// modify changes a claim's volume to the desired attributes.
func (c *Controller) modify(ctx context.Context, s subject) (time.Duration, error) {
	view := claim.ModifyOf(s.claim)
	step := lifecycle.NextModify(view, c.memories.of(s.claim.UID).modify, time.Now())
	if step.Action == claim.ModifyNothing {
		c.memories.change(s.claim.UID, forgetModify)
		return 0, nil
	}
	able, err := c.modifies(ctx)
	if err != nil {
		return 0, err
	}
	if !able {
		c.modifyUnable(ctx, s, view.Desired)
		return 0, nil
	}
	switch step.Action {
	case claim.ModifyWait:
		return step.After, nil
	case claim.ModifyCancel:
		return 0, c.cancelModify(ctx, s)
	}
	return c.apply(ctx, s, step.Class, step.Action == claim.ModifyStart)
}

func forgetModify(m *memory) { m.modify, m.modifyUnable = lifecycle.History{}, "" }

func (c *Controller) modifies(ctx context.Context) (bool, error) {
	if c.options.NoModify {
		return false, nil
	}
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	can, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return false, fmt.Errorf("read the capabilities of the driver's controller: %w", err)
	}
	return can.Modify, nil
}

// apply modifies a claim's volume to match a class: it records the intent, calls the
// driver and records the outcome.
// started is false if it continues an attempt that may still be running.
func (c *Controller) apply(ctx context.Context, s subject, name string, started bool) (time.Duration, error) {
	class, err := c.class(ctx, name)
	if apierrors.IsNotFound(err) {
		return 0, c.classMissing(ctx, s, name, started)
	}
	if err != nil {
		return 0, err
	}
	if text := lifecycle.ForeignClass(class, c.env.Driver); text != "" {
		return c.rejectForeign(ctx, s, name, text)
	}
	secrets, err := c.env.Secret(ctx, claim.ModifySecret(s.volume))
	if err != nil {
		err = fmt.Errorf("PersistentVolume %s: the secret for modifying: %w", s.volume.Name, err)
		c.fail(ctx, s, reasonModifyFailed, cluster.Truncate(err.Error()))
		return 0, err
	}
	begun, err := c.begin(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.BeginModify(pvc, name, time.Now()) })
	if err != nil {
		return 0, err
	}
	if begun.claim != s.claim {
		c.event(s, reasonModify, fmt.Sprintf("modifying volume %s to VolumeAttributesClass %q", s.volume.Spec.CSI.VolumeHandle, name))
	}
	if err := c.env.Failpoints.Hit("modify/begun"); err != nil {
		return 0, err
	}
	return c.callAndRecord(ctx, begun, class, secrets)
}

func (c *Controller) callAndRecord(
	ctx context.Context, s subject, class *storagev1.VolumeAttributesClass, secrets map[string]string,
) (time.Duration, error) {
	c.memories.change(s.claim.UID, func(m *memory) { m.modify.Final = false })
	calling, end := c.traced(ctx, s, modifyOperation)
	calling, warnings := client.CollectWarnings(calling)
	err := c.callModify(calling, &csi.ControllerModifyVolumeRequest{
		VolumeId: s.volume.Spec.CSI.VolumeHandle, Secrets: secrets,
		MutableParameters: claim.MutableParameters(class.Parameters, s.claim, s.volume.Name, c.options.ExtraModifyMetadata),
	})
	end(err)
	if err != nil {
		return c.modifyFailed(ctx, s, class.Name, err)
	}
	for _, text := range warnings() {
		c.fail(ctx, s, reasonModifyWarning,
			fmt.Sprintf("the volume differs from VolumeAttributesClass %q: %s", class.Name, text))
	}
	if err := c.env.Failpoints.Hit("modify/called"); err != nil {
		return 0, err
	}
	return 0, c.modified(ctx, s, class.Name)
}

func (c *Controller) callModify(ctx context.Context, request *csi.ControllerModifyVolumeRequest) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.ModifyTimeout)
	defer cancel()
	return c.env.CSI.ControllerModifyVolume(ctx, request)
}

// class finds a class, live when the cache lacks it: the watch may have
// delivered the claim before its class.
func (c *Controller) class(ctx context.Context, name string) (*storagev1.VolumeAttributesClass, error) {
	if class, found := c.classes.Get(name); found {
		return class, nil
	}
	class, err := c.env.Core.StorageV1().VolumeAttributesClasses().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read VolumeAttributesClass %q: %w", name, err)
	}
	return class, nil
}

// classMissing waits for a class to be created: its creation wakes the claim. The
// class of an attempt with an unknown outcome is polled: the claim may name another class
// by now, so that the creation would not wake it.
func (c *Controller) classMissing(ctx context.Context, s subject, name string, started bool) error {
	err := fmt.Errorf("VolumeAttributesClass %q does not exist", name)
	c.fail(ctx, s, reasonModifyFailed, err.Error())
	if !started {
		return err
	}
	_, err = c.begin(ctx, s, claim.PendModify)
	return err
}

// rejectForeign rejects a class of another driver without a call.
func (c *Controller) rejectForeign(ctx context.Context, s subject, class, text string) (time.Duration, error) {
	_, err := c.begin(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.RejectModify(pvc, class, text, time.Now()) })
	if err != nil {
		return 0, err
	}
	c.fail(ctx, s, reasonModifyFailed, text)
	then := lifecycle.RejectedClass(class, time.Now(), c.options.InfeasiblePause)
	c.memories.change(s.claim.UID, func(m *memory) { m.modify = then.History })
	return then.Pause, nil
}

// modified records success, first in the volume: after a crash in between, the claim's
// status still requires work.
func (c *Controller) modified(ctx context.Context, s subject, class string) error {
	if now := s.volume.Spec.VolumeAttributesClassName; now == nil || *now != class {
		err := c.patchVolume(ctx, s.volume, map[string]any{"spec": map[string]any{"volumeAttributesClassName": class}})
		if err != nil {
			return err
		}
	}
	if err := c.env.Failpoints.Hit("modify/volume-written"); err != nil {
		return err
	}
	err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.FinishModify(pvc, class) })
	if err != nil {
		return err
	}
	c.memories.change(s.claim.UID, forgetModify)
	c.event(s, reasonModifySuccessful, fmt.Sprintf("the volume has VolumeAttributesClass %q", class))
	c.add(s.key()) // the desired class may have changed
	return nil
}

// modifyFailed records how an attempt ended: in memory, in an event and in the
// claim's status.
func (c *Controller) modifyFailed(ctx context.Context, s subject, class string, failure error) (time.Duration, error) {
	then := lifecycle.AfterFailedModify(class, claim.ModifyOf(s.claim).Desired, failure, time.Now(), c.options.InfeasiblePause)
	c.memories.change(s.claim.UID, func(m *memory) { m.modify = then.History })
	c.fail(ctx, s, reasonModifyFailed, cluster.Truncate(failure.Error()))
	err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailModify(pvc, then.Outcome, client.CodeName(failure), cluster.Truncate(failure.Error()), time.Now())
	})
	return again(then, failure, err)
}

func (c *Controller) cancelModify(ctx context.Context, s subject) error {
	if _, err := c.begin(ctx, s, claim.CancelModify); err != nil {
		return err
	}
	c.memories.change(s.claim.UID, forgetModify)
	c.event(s, reasonModifyCanceled, "the claim names no VolumeAttributesClass any more; the volume stays as it is")
	return nil
}

// modifyUnable writes one event for each desired class that the driver does not
// modify volumes.
func (c *Controller) modifyUnable(ctx context.Context, s subject, desired string) {
	if desired == "" || c.memories.of(s.claim.UID).modifyUnable == desired {
		return
	}
	c.memories.change(s.claim.UID, func(m *memory) { m.modifyUnable = desired })
	c.fail(ctx, s, reasonModifyFailed, lifecycle.UnableToModify(c.env.Driver))
}
