package resize

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// expansion is how the driver's volumes grow.
type expansion struct {
	lifecycle.Expands
	modes claim.Modes
}

// expansion asks for the node's part only if the controller has none: then the
// kubelet does all of it. A driver may lack the Node service.
func (c *Controller) expansion(ctx context.Context) (expansion, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	controller, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return expansion{}, fmt.Errorf("read the capabilities of the driver's controller: %w", err)
	}
	can := expansion{lifecycle.Expands{Controller: controller.Expand}, claim.Modes{SingleNodeMultiWriter: controller.SingleNodeMultiWriter}}
	if can.Controller {
		return can, nil
	}
	node, err := c.env.CSI.NodeCapabilities(ctx)
	if err != nil && !client.Lacks(err) {
		return expansion{}, fmt.Errorf("read the capabilities of the driver's node service: %w", err)
	}
	can.Node = err == nil && node.Expand
	return can, nil
}

// resize does the controller's part of an expansion. It validates the objects before it
// writes anything, and writes the target size before it calls the driver.
func (c *Controller) resize(ctx context.Context, s subject) (time.Duration, error) {
	view := claim.ResizeOf(s.claim, s.volume)
	if !view.Asked() {
		c.memories.change(s.claim.UID, forgetExpand)
		return 0, nil
	}
	can, err := c.expansion(ctx)
	if err != nil {
		return 0, err
	}
	switch step := lifecycle.NextExpand(view, can.Expands, c.memories.of(s.claim.UID).expand, time.Now()); step.Action {
	case lifecycle.ExpandNothing:
		return 0, nil // the kubelet expands the filesystem
	case lifecycle.ExpandUnable:
		c.expandUnable(ctx, s, view.Desired.String())
		return 0, nil
	case lifecycle.ExpandWait:
		return step.After, nil
	default:
		return c.grow(ctx, s, step, can.modes)
	}
}

func forgetExpand(m *memory) { m.expand, m.expandUnable = lifecycle.History{}, "" }

// grow expands a claim's volume to a target size: it records the intent, calls the driver
// and records the outcome.
func (c *Controller) grow(
	ctx context.Context, s subject, step lifecycle.ExpandStep, modes claim.Modes,
) (after time.Duration, err error) {
	ctx, end := c.traced(ctx, s, resizeOperation)
	defer func() { end(err) }()
	var request *csi.ControllerExpandVolumeRequest
	if step.Action == lifecycle.ExpandCall {
		if request, err = c.expandRequest(ctx, s.volume, step.Target, modes); err != nil {
			c.fail(ctx, s, reasonResizeFailed, cluster.Truncate(err.Error()))
			return 0, err
		}
	}
	s, err = c.begin(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.BeginResize(pvc, step.Target, time.Now()) })
	if err != nil {
		return 0, err
	}
	if err := c.env.Failpoints.Hit("resize/begun"); err != nil {
		return 0, err
	}
	if request == nil { // the kubelet expands the volume; the new size is the target
		return 0, c.grown(ctx, s, step.Target, true)
	}
	if by := c.usedBy(ctx, s); by != "" {
		err := lifecycle.InUseError(request.GetVolumeId(), by)
		c.fail(ctx, s, reasonResizeFailed, cluster.Truncate(err.Error()))
		return 0, err
	}
	return c.expand(ctx, s, step, request)
}

func (c *Controller) expandRequest(
	ctx context.Context, volume *corev1.PersistentVolume, target resource.Quantity, modes claim.Modes,
) (*csi.ControllerExpandVolumeRequest, error) {
	source := volume.Spec.CSI
	mode, err := claim.FoldAccessModes(modes, volume.Spec.AccessModes)
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: %w", volume.Name, err)
	}
	secrets, err := c.env.Secret(ctx, source.ControllerExpandSecretRef)
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: controllerExpandSecretRef: %w", volume.Name, err)
	}
	use := claim.Use{Block: claim.IsBlock(volume.Spec.VolumeMode), FSType: source.FSType, MountFlags: volume.Spec.MountOptions}
	return &csi.ControllerExpandVolumeRequest{
		VolumeId: source.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: target.Value()},
		Secrets: secrets, VolumeCapability: use.Capability(mode),
	}, nil
}

func (c *Controller) expand(
	ctx context.Context, s subject, step lifecycle.ExpandStep, request *csi.ControllerExpandVolumeRequest,
) (time.Duration, error) {
	c.event(s, reasonResizing, fmt.Sprintf("expanding volume %s to %s", request.GetVolumeId(), step.Target.String()))
	answer, err := c.callExpand(ctx, request)
	if err == nil {
		err = claim.CheckExpanded(request.GetVolumeId(), step.Target, answer.GetCapacityBytes())
	}
	if err != nil {
		return c.expandFailed(ctx, s, step, err)
	}
	c.memories.change(s.claim.UID, forgetExpand)
	if err := c.env.Failpoints.Hit("resize/called"); err != nil {
		return 0, err
	}
	size := resource.NewQuantity(answer.GetCapacityBytes(), resource.BinarySI)
	return 0, c.grown(ctx, s, *size, answer.GetNodeExpansionRequired())
}

func (c *Controller) callExpand(
	ctx context.Context, request *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	return c.env.CSI.ControllerExpandVolume(ctx, request)
}

// grown records a new size, first in the volume: after a crash in between, the claim's
// status still requires work.
func (c *Controller) grown(ctx context.Context, s subject, size resource.Quantity, node bool) error {
	if err := c.writeCapacity(ctx, s, size, node); err != nil {
		return err
	}
	if err := c.env.Failpoints.Hit("resize/volume-written"); err != nil {
		return err
	}
	if node {
		if err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.AwaitNode(pvc, time.Now()) }); err != nil {
			return err
		}
		c.event(s, reasonNodeRequired, "the volume has grown; its filesystem grows on the node")
		return nil
	}
	if err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.FinishResize(pvc, size) }); err != nil {
		return err
	}
	c.event(s, reasonResizeSuccessful, fmt.Sprintf("the volume has %s", size.String()))
	return nil
}

// writeCapacity writes the volume's size and, if the kubelet has to expand the
// filesystem, the claim's previous size.
func (c *Controller) writeCapacity(ctx context.Context, s subject, size resource.Quantity, node bool) error {
	change := map[string]any{}
	had := s.volume.Spec.Capacity[corev1.ResourceStorage]
	if had.Cmp(size) != 0 {
		change["spec"] = map[string]any{"capacity": map[string]any{string(corev1.ResourceStorage): size.String()}}
	}
	_, marked := s.volume.Annotations[claim.PreResizeAnnotation]
	if granted, known := s.claim.Status.Capacity[corev1.ResourceStorage]; node && known && !marked {
		change["metadata"] = map[string]any{"annotations": map[string]any{claim.PreResizeAnnotation: granted.String()}}
	}
	if len(change) == 0 {
		return nil
	}
	return c.patchVolume(ctx, s.volume, change)
}

// expandFailed records how an attempt ended: in memory, in an event and in the
// claim's status.
func (c *Controller) expandFailed(
	ctx context.Context, s subject, step lifecycle.ExpandStep, failure error,
) (time.Duration, error) {
	then := lifecycle.AfterFailedExpand(step, failure, time.Now(), c.options.InfeasiblePause)
	c.memories.change(s.claim.UID, func(m *memory) { m.expand = then.History })
	c.fail(ctx, s, reasonResizeFailed, cluster.Truncate(failure.Error()))
	err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailResize(pvc, then.Outcome, cluster.Truncate(failure.Error()), time.Now())
	})
	return again(then, failure, err)
}

// again returns the queue's pause and error after a failed attempt. recording is the
// error of writing the outcome.
func again(then lifecycle.Failure, failure, recording error) (time.Duration, error) {
	switch {
	case recording != nil:
		return 0, errors.Join(failure, recording)
	case then.Pause > 0:
		return then.Pause, nil
	}
	return 0, failure
}

// expandUnable writes one event for each desired size that the driver does not
// expand volumes.
func (c *Controller) expandUnable(ctx context.Context, s subject, desired string) {
	if c.memories.of(s.claim.UID).expandUnable == desired {
		return
	}
	c.memories.change(s.claim.UID, func(m *memory) { m.expandUnable = desired })
	c.fail(ctx, s, reasonResizeFailed, lifecycle.UnableToExpand(c.env.Driver))
}
