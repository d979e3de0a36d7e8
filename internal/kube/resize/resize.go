package resize

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/claim"
)

// expansion is how the driver's volumes grow.
type expansion struct {
	controller, node bool
	modes            claim.Modes
}

// expansion asks for the node's part only where the controller has none: then
// the kubelet does all of it. A controller need not serve the Node service.
func (c *Controller) expansion(ctx context.Context) (expansion, error) {
	ctx, cancel := c.env.Call(ctx)
	defer cancel()
	controller, err := c.env.CSI.ControllerCapabilities(ctx)
	if err != nil {
		return expansion{}, fmt.Errorf("ask what the driver's controller can do: %w", err)
	}
	can := expansion{controller: controller.Expand, modes: claim.Modes{SingleNodeMultiWriter: controller.SingleNodeMultiWriter}}
	if can.controller {
		return can, nil
	}
	node, err := c.env.CSI.NodeCapabilities(ctx)
	if err != nil && !errors.Is(err, backend.ErrUnsupported) {
		return expansion{}, fmt.Errorf("ask what the driver's node service can do: %w", err)
	}
	can.node = err == nil && node.Expand
	return can, nil
}

// resize does the controller's part of growing a claim. What can be wrong with
// the objects is found before anything is written, and the size to be reached
// is written before the driver is called.
func (c *Controller) resize(ctx context.Context, s subject) (time.Duration, error) {
	view := claim.ResizeOf(s.claim, s.volume)
	if !view.Asked() {
		c.memories.change(s.claim.UID, forgetResize)
		return 0, nil
	}
	can, err := c.expansion(ctx)
	if err != nil {
		return 0, err
	}
	if !can.controller && !can.node {
		c.resizeUnable(ctx, s, view.Wanted.String())
		return 0, nil
	}
	known := c.memories.of(s.claim.UID)
	view.NodeOnly, view.Failed = !can.controller, known.resizeFailed
	target, todo := view.Target()
	if !todo {
		return 0, nil // the kubelet's turn
	}
	if view.Repeats(target) {
		// The first repetition reaches the driver: it may have been mended.
		if rest := known.resizeSlow.rest(target.String(), time.Now()); rest > 0 {
			return rest, nil
		}
		c.memories.change(s.claim.UID, func(m *memory) {
			m.resizeSlow = slow{target.String(), time.Now().Add(c.options.InfeasiblePause)}
		})
	}
	return c.grow(ctx, s, target, can)
}

func forgetResize(m *memory) {
	m.resizeFailed, m.refused, m.resizeSlow, m.resizeUnable = false, time.Time{}, slow{}, ""
}

// grow takes a claim to a target: the intent, the call, the outcome.
func (c *Controller) grow(ctx context.Context, s subject, target resource.Quantity, can expansion) (time.Duration, error) {
	var request *csi.ControllerExpandVolumeRequest
	if can.controller {
		var err error
		if request, err = c.expandRequest(ctx, s.volume, target, can.modes); err != nil {
			c.fail(ctx, s, reasonResizeFailed, brief(err))
			return 0, err
		}
	}
	s, err := c.begin(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.BeginResize(pvc, target, time.Now()) })
	if err != nil {
		return 0, err
	}
	if err := c.env.Failpoints.Hit("resize/begun"); err != nil {
		return 0, err
	}
	if !can.controller { // the kubelet does it; the size is known beforehand
		return 0, c.grown(ctx, s, target, true)
	}
	if by := c.usedBy(ctx, s); by != "" {
		err := fmt.Errorf("the driver expands volume %s only while it is not in use, and it is used by %s", request.GetVolumeId(), by)
		c.fail(ctx, s, reasonResizeFailed, brief(err))
		return 0, err
	}
	return c.expand(ctx, s, target, request)
}

func (c *Controller) expandRequest(ctx context.Context, volume *corev1.PersistentVolume, target resource.Quantity, modes claim.Modes) (*csi.ControllerExpandVolumeRequest, error) {
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

func (c *Controller) expand(ctx context.Context, s subject, target resource.Quantity, request *csi.ControllerExpandVolumeRequest) (time.Duration, error) {
	c.tell(s, reasonResizing, fmt.Sprintf("expanding volume %s to %s", request.GetVolumeId(), target.String()))
	answer, err := c.callExpand(ctx, request)
	if err == nil {
		err = claim.CheckExpanded(request.GetVolumeId(), target, answer.GetCapacityBytes())
	}
	if err != nil {
		return c.resizeFailed(ctx, s, target, err)
	}
	c.memories.change(s.claim.UID, forgetResize)
	if err := c.env.Failpoints.Hit("resize/called"); err != nil {
		return 0, err
	}
	size := resource.NewQuantity(answer.GetCapacityBytes(), resource.BinarySI)
	return 0, c.grown(ctx, s, *size, answer.GetNodeExpansionRequired())
}

func (c *Controller) callExpand(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	ctx, cancel := c.bounded(ctx, c.options.ResizeTimeout)
	defer cancel()
	return c.env.CSI.ControllerExpandVolume(ctx, request)
}

// bounded is a call's context: with a bound of its own, or the process's.
func (c *Controller) bounded(ctx context.Context, own time.Duration) (context.Context, context.CancelFunc) {
	if own > 0 {
		return context.WithTimeout(ctx, own)
	}
	return c.env.Call(ctx)
}

// grown writes a new size down: the volume's first, so that after a death in
// between the claim still says that there is work.
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
		c.tell(s, reasonNodeRequired, "the volume has grown; its filesystem grows on the node")
		return nil
	}
	if err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) { claim.FinishResize(pvc, size) }); err != nil {
		return err
	}
	c.tell(s, reasonResizeSuccessful, fmt.Sprintf("the volume has %s", size.String()))
	return nil
}

// writeCapacity writes the volume's size and, where the node has still to do
// its part, what the claim had before.
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

// resizeFailed remembers, tells and writes down how an attempt ended.
func (c *Controller) resizeFailed(ctx context.Context, s subject, target resource.Quantity, failure error) (time.Duration, error) {
	outcome := claim.Classify(claim.CallExpand, failure)
	c.memories.change(s.claim.UID, func(m *memory) {
		m.resizeFailed, m.refused = outcome != claim.OutcomeUncertain, time.Time{}
		if outcome == claim.OutcomeInUse {
			m.refused = time.Now()
		}
	})
	c.fail(ctx, s, reasonResizeFailed, brief(failure))
	err := c.record(ctx, s, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailResize(pvc, outcome, brief(failure), time.Now())
	})
	if err != nil {
		return 0, errors.Join(failure, err)
	}
	rest := c.memories.of(s.claim.UID).resizeSlow.rest(target.String(), time.Now())
	if outcome == claim.OutcomeInfeasible && rest > 0 {
		return rest, nil // refused twice: not a failure to be repeated soon
	}
	return 0, failure
}

// resizeUnable tells once per wish that the driver does not expand volumes.
func (c *Controller) resizeUnable(ctx context.Context, s subject, wish string) {
	if c.memories.of(s.claim.UID).resizeUnable == wish {
		return
	}
	c.memories.change(s.claim.UID, func(m *memory) { m.resizeUnable = wish })
	c.fail(ctx, s, reasonResizeFailed, fmt.Sprintf("driver %s cannot expand volumes: it has EXPAND_VOLUME neither in its controller nor in its node service", c.env.Driver))
}
