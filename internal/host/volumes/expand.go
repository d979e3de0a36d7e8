package volumes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

// Reasons of events, as external-resizer has them.
const (
	reasonResizing         = "Resizing"
	reasonResizeFailed     = "VolumeResizeFailed"
	reasonNodeRequired     = "FileSystemResizeRequired"
	reasonResizeSuccessful = "VolumeResizeSuccessful"
)

// histories are the results of the last attempts to change volumes, by claim UID. They
// are lost with the process: then the driver is called again.
type histories struct{ memories[lifecycle.History] }

func (h *histories) learn(pvc *corev1.PersistentVolumeClaim, history lifecycle.History) {
	if history == (lifecycle.History{}) {
		h.drop(string(pvc.UID))
		return
	}
	h.set(string(pvc.UID), history)
}

// asksForSize reports whether a claim asks for more than it has.
func asksForSize(pvc *corev1.PersistentVolumeClaim) bool {
	desired, granted := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pvc.Status.Capacity[corev1.ResourceStorage]
	return pvc.Status.Phase == corev1.ClaimBound && desired.Cmp(granted) > 0
}

// syncExpansion does the controller's part of expanding a claim's volume.
func (m *Manager) syncExpansion(ctx context.Context, key string) (time.Duration, error) {
	found, err := m.changeable(key)
	if err != nil || found.volume == nil {
		return 0, err
	}
	pause, err := m.expand(ctx, found)
	return m.explainChange(expansions, found.claim, reasonResizeFailed, pause, err)
}

// explainChange is explain for an expansion or a modification. If a failure has a
// pause of its own, the next attempt is due then and no back-off applies.
func (m *Manager) explainChange(
	controller string, pvc *corev1.PersistentVolumeClaim, reason string, pause time.Duration, err error,
) (time.Duration, error) {
	if err != nil && pause > 0 {
		m.recordEvent(claimAbout(pvc), true, reason, err.Error())
		return pause, nil
	}
	return pause, m.explain(controller, claimAbout(pvc), reason, err)
}

// expand checks the objects before it writes anything, and records the size to reach
// before it calls the driver.
func (m *Manager) expand(ctx context.Context, found bound) (pause time.Duration, err error) {
	view := claim.ResizeOf(found.claim, found.volume)
	if !view.Asked() {
		return 0, nil
	}
	if err := m.allowsExpansion(found.claim); err != nil {
		return 0, err
	}
	driver, can, err := m.expandDriver(ctx, found.volume)
	if err != nil {
		return 0, err
	}
	step := lifecycle.NextExpand(view, can.Expands, m.expansions.get(string(found.claim.UID)), time.Now())
	switch step.Action {
	case lifecycle.ExpandNothing:
		return 0, nil // the node's part is next
	case lifecycle.ExpandUnable:
		// A failure, since those are tried again when another driver comes.
		return 0, fmt.Errorf("%w: %s", claim.ErrDriverFailed, lifecycle.UnableToExpand(driver.Name))
	case lifecycle.ExpandWait:
		return step.After, nil
	}
	has := found.volume.Spec.Capacity[corev1.ResourceStorage]
	of := claimSubject(found.claim, found.volume.Spec.CSI.Driver, found.volume.Spec.CSI.VolumeHandle)
	err = m.stepOf(ctx, of, StepExpand, onward(claim.CallExpand), func(ctx context.Context) (_ string, err error) {
		pause, err = m.attemptExpand(ctx, driver, found, step, can.modes)
		return fmt.Sprintf("%s → %s", has.String(), step.Target.String()), err
	})
	return pause, err
}

// allowsExpansion returns an error unless the class of a claim allows its expansion.
func (m *Manager) allowsExpansion(pvc *corev1.PersistentVolumeClaim) error {
	name := className(pvc)
	if name == "" {
		return fmt.Errorf("%s names no StorageClass", claim.Describe(pvc))
	}
	class, err := m.classOf(name)
	on := dependencies(dependency("storageclasses", name))
	switch {
	case err != nil:
		return err
	case class == nil:
		return waitFor(on, "", "%s: spec.storageClassName: StorageClass %q does not exist", claim.Describe(pvc), name)
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return waitFor(on, reasonResizeFailed,
			"%s: spec.resources.requests.storage: StorageClass %q does not say allowVolumeExpansion: true",
			claim.Describe(pvc), name)
	}
	return nil
}

// abilities is how a driver's volumes grow.
type abilities struct {
	lifecycle.Expands
	modes claim.Modes
}

func (m *Manager) expandDriver(
	ctx context.Context, volume *corev1.PersistentVolume,
) (driver *plugins.Driver, can abilities, err error) {
	err = ask(ctx, "volume "+volume.Name, func(ctx context.Context) error {
		if driver, err = m.options.Drivers.Driver(volume.Spec.CSI.Driver); err != nil {
			return err
		}
		controller, err := driver.Client.ControllerCapabilities(ctx)
		if err != nil {
			return err
		}
		can.Controller, can.modes.SingleNodeMultiWriter = controller.Expand, controller.SingleNodeMultiWriter
		if can.Controller {
			return nil
		}
		node, err := driver.Client.NodeCapabilities(ctx)
		can.Node = err == nil && node.Expand
		return err
	})
	return driver, can, err
}

// attemptExpand is one attempt: the intent, the call, the outcome. After an error,
// pause is the time until the next attempt if that is not the ordinary one.
func (m *Manager) attemptExpand(
	ctx context.Context, driver *plugins.Driver, found bound, step lifecycle.ExpandStep, modes claim.Modes,
) (pause time.Duration, err error) {
	var request *csi.ControllerExpandVolumeRequest
	if step.Action == lifecycle.ExpandCall {
		if request, err = m.expandRequest(found.volume, step.Target, modes); err != nil {
			return 0, err
		}
	}
	if err := m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.BeginResize(pvc, step.Target, time.Now())
	}); err != nil {
		return 0, err
	}
	if err := m.hit("expand/intent"); err != nil {
		return 0, err
	}
	if request == nil { // the node does all of it; the size is known beforehand
		return 0, m.recordExpanded(found, step.Target, true)
	}
	if err := m.waitUntilIdle(found); err != nil {
		return 0, err
	}
	m.recordEvent(claimAbout(found.claim), false, reasonResizing,
		fmt.Sprintf("expanding volume %s to %s", request.GetVolumeId(), step.Target.String()))
	answer, err := driver.Client.ControllerExpandVolume(ctx, request)
	if err == nil {
		err = claim.CheckExpanded(request.GetVolumeId(), step.Target, answer.GetCapacityBytes())
	}
	if err != nil {
		return m.expandFailed(found, step, err)
	}
	m.expansions.learn(found.claim, lifecycle.History{})
	if err := m.hit("expand/called"); err != nil {
		return 0, err
	}
	return 0, m.recordExpanded(found, inBytes(answer.GetCapacityBytes()), answer.GetNodeExpansionRequired())
}

// waitUntilIdle fails for a volume in use whose driver refused to expand it in use.
func (m *Manager) waitUntilIdle(found bound) error {
	if !m.expansions.get(string(found.claim.UID)).NeedsIdle(time.Now()) {
		return nil
	}
	source := found.volume.Spec.CSI
	user, err := m.inUse(source.Driver, source.VolumeHandle)
	if err != nil || user == "" {
		return err
	}
	return fmt.Errorf("%w: %w", claim.ErrDriverFailed, lifecycle.InUseError(source.VolumeHandle, user))
}

func (m *Manager) expandRequest(
	volume *corev1.PersistentVolume, target resource.Quantity, modes claim.Modes,
) (*csi.ControllerExpandVolumeRequest, error) {
	source := volume.Spec.CSI
	mode, err := claim.FoldAccessModes(modes, volume.Spec.AccessModes)
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: %w", volume.Name, err)
	}
	secrets, err := m.secret(source.ControllerExpandSecretRef, "ControllerExpandVolume")
	if err != nil {
		return nil, fmt.Errorf("PersistentVolume %s: %w", volume.Name, err)
	}
	return &csi.ControllerExpandVolumeRequest{
		VolumeId: source.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: target.Value()},
		Secrets: secrets, VolumeCapability: useOf(volume).Capability(mode),
	}, nil
}

func useOf(volume *corev1.PersistentVolume) claim.Use {
	return claim.Use{
		Block: claim.IsBlock(volume.Spec.VolumeMode), FSType: volume.Spec.CSI.FSType,
		MountFlags: volume.Spec.MountOptions,
	}
}

func (m *Manager) expandFailed(found bound, step lifecycle.ExpandStep, failure error) (time.Duration, error) {
	then := lifecycle.AfterFailedExpand(step, failure, time.Now(), lifecycle.InfeasiblePause)
	m.expansions.learn(found.claim, then.History)
	err := m.editClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailResize(pvc, then.Outcome, shorten(failure.Error()), time.Now())
	})
	return pauseAfter(then, failure, err)
}

// pauseAfter returns a failed attempt's pause, unless its outcome could not be
// recorded.
func pauseAfter(then lifecycle.Failure, failure, recording error) (time.Duration, error) {
	if recording != nil {
		return 0, errors.Join(failure, recording)
	}
	return then.Pause, failure
}

// recordExpanded writes the new size, of volume and claim at once. It writes as none of
// the claim's controllers: a modification that failed because the volume was too small
// is due again, and its back-off must end.
func (m *Manager) recordExpanded(found bound, size resource.Quantity, node bool) error {
	noController := &Manager{shared: m.shared}
	err := noController.editBound(found, func(pvc *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
		volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		// From now on, the node's part is for the size that the driver reported.
		pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
		if node {
			markUnexpanded(volume, pvc.Status.Capacity[corev1.ResourceStorage])
			claim.AwaitNode(pvc, time.Now())
		} else {
			claim.FinishResize(pvc, size)
			markExpanded(volume, size)
		}
	})
	if err != nil {
		return err
	}
	rejected := m.modifications.get(string(found.claim.UID))
	rejected.Rejected, rejected.RetryAt = "", time.Time{}
	m.modifications.learn(found.claim, rejected)
	if node {
		m.recordEvent(claimAbout(found.claim), false, reasonNodeRequired,
			"the volume has grown; its filesystem grows on the node")
	} else {
		m.recordEvent(claimAbout(found.claim), false, reasonResizeSuccessful,
			fmt.Sprintf("the volume has %s", size.String()))
	}
	return nil
}

// markUnexpanded notes on a volume the size of its filesystem. If the claim is deleted
// before the filesystem grows, the next claim of the volume has it grown.
func markUnexpanded(volume *corev1.PersistentVolume, had resource.Quantity) {
	if _, marked := volume.Annotations[claim.PreResizeAnnotation]; marked || had.IsZero() {
		return
	}
	if volume.Annotations == nil {
		volume.Annotations = map[string]string{}
	}
	volume.Annotations[claim.PreResizeAnnotation] = had.String()
}

// markExpanded removes the note from a volume whose filesystem has grown to its size.
func markExpanded(volume *corev1.PersistentVolume, size resource.Quantity) {
	if size.Cmp(sizeOf(volume)) >= 0 {
		delete(volume.Annotations, claim.PreResizeAnnotation)
	}
}

// unexpanded returns the size of the filesystem of a volume that grew under an earlier
// claim and was not mounted since.
func unexpanded(volume *corev1.PersistentVolume) (had resource.Quantity, pending bool) {
	text, marked := volume.Annotations[claim.PreResizeAnnotation]
	if !marked {
		return had, false
	}
	had, err := quantity.Parse(text)
	return had, err == nil && had.Cmp(sizeOf(volume)) < 0
}
