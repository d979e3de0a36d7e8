package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Reasons of events, as external-resizer has them.
const (
	reasonResizing         = "Resizing"
	reasonResizeFailed     = "VolumeResizeFailed"
	reasonNodeRequired     = "FileSystemResizeRequired"
	reasonResizeSuccessful = "VolumeResizeSuccessful"
)

// tries is what the last attempts to change a volume taught, by claim UID. It
// is lost with the process: then the driver is asked once more.
type tries struct{ expand, modify lifecycle.History }

// learn replaces what the attempts of one kind taught.
func (m *Manager) learn(pvc *corev1.PersistentVolumeClaim, change func(*tries)) {
	known := m.tries.get(string(pvc.UID))
	if change(&known); known == (tries{}) {
		m.tries.drop(string(pvc.UID))
		return
	}
	m.tries.set(string(pvc.UID), known)
}

// change brings size and attributes of a bound volume to those of its claim.
func (m *Manager) change(ctx context.Context, found bound) (time.Duration, error) {
	grow, err := m.grow(ctx, found)
	err = m.explain(claimResource, claimAbout(found.claim), reasonResizeFailed, err)
	if fresh, readErr := m.boundClaim(store.Key(found.claim.Namespace, found.claim.Name)); readErr == nil && fresh.volume != nil {
		found = fresh // what grow wrote is in it
	}
	modify, modifyErr := m.modify(ctx, found)
	again := min(grow, modify)
	if again == 0 {
		again = max(grow, modify)
	}
	return again, either(err, modifyErr)
}

// either is the error of two things that were tried: as long as one of them
// failed, no key only waits.
func either(first, second error) error {
	waits := [2]bool{errors.Is(first, ErrWaiting), errors.Is(second, ErrWaiting)}
	switch {
	case first == nil, second != nil && waits[0] && !waits[1]:
		return second
	case second == nil, waits[1] && !waits[0]:
		return first
	case waits[0] && waits[1]:
		return &blocked{error: errors.Join(first, second), on: slices.Concat(onOf(first), onOf(second))}
	}
	return errors.Join(first, second)
}

// grow does the controller's part of growing a volume. What can be wrong with
// the objects is found before anything is written, and the size to be reached
// is written before the driver is called.
func (m *Manager) grow(ctx context.Context, found bound) (time.Duration, error) {
	view := claim.ResizeOf(found.claim, found.volume)
	if !view.Asked() {
		return 0, nil
	}
	if err := m.mayGrow(found.claim); err != nil {
		return 0, err
	}
	driver, can, err := m.growth(ctx, found.volume)
	if err != nil {
		return 0, err
	}
	step := lifecycle.NextExpand(view, can.Expands, m.tries.get(string(found.claim.UID)).expand, time.Now())
	switch step.Action {
	case lifecycle.ExpandNothing:
		return 0, nil // the node's turn
	case lifecycle.ExpandUnable:
		// A failure, since those are tried again when another driver comes.
		return 0, fmt.Errorf("%w: %s", claim.ErrDriverFailed, lifecycle.UnableToExpand(driver.Name))
	case lifecycle.ExpandWait:
		return step.After, nil
	}
	has, pause := found.volume.Spec.Capacity[corev1.ResourceStorage], time.Duration(0)
	of := claimSubject(found.claim, found.volume.Spec.CSI.Driver, found.volume.Spec.CSI.VolumeHandle)
	err = m.stepOf(ctx, of, StepExpand, onward(claim.CallExpand), func(ctx context.Context) (_ string, err error) {
		pause, err = m.expand(ctx, driver, found, step, can.modes)
		return fmt.Sprintf("%s → %s", has.String(), step.Target.String()), err
	})
	if err != nil && pause > 0 {
		m.recordEvent(claimAbout(found.claim), true, reasonResizeFailed, err.Error())
		return pause, nil
	}
	return 0, err
}

func (m *Manager) mayGrow(pvc *corev1.PersistentVolumeClaim) error {
	class, err := m.classOf(pvc)
	if err != nil {
		return err
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return waitFor(dependencies(dependency("storageclasses", class.Name)), reasonResizeFailed,
			"%s: spec.resources.requests.storage: StorageClass %q does not say allowVolumeExpansion: true", claim.Describe(pvc), class.Name)
	}
	return nil
}

// abilities is how a driver's volumes grow.
type abilities struct {
	lifecycle.Expands
	modes claim.Modes
}

func (m *Manager) growth(ctx context.Context, volume *corev1.PersistentVolume) (driver *plugins.Driver, can abilities, err error) {
	err = ask(ctx, "volume "+volume.Name, func(ctx context.Context) error {
		if driver, err = m.options.Drivers.Driver(volume.Spec.CSI.Driver); err != nil {
			return err
		}
		controller, err := driver.Client.ControllerCapabilities(ctx)
		if err != nil {
			return err
		}
		can = abilities{lifecycle.Expands{Controller: controller.Expand}, claim.Modes{SingleNodeMultiWriter: controller.SingleNodeMultiWriter}}
		if can.Controller {
			return nil
		}
		node, err := driver.Client.NodeCapabilities(ctx)
		can.Node = err == nil && node.Expand
		return err
	})
	return driver, can, err
}

// expand is one attempt: the intent, the call, the outcome. After an error, pause is
// the time until the next attempt if that is not the ordinary one.
func (m *Manager) expand(ctx context.Context, driver *plugins.Driver, found bound, step lifecycle.ExpandStep, modes claim.Modes) (pause time.Duration, err error) {
	var request *csi.ControllerExpandVolumeRequest
	if step.Action == lifecycle.ExpandCall {
		if request, err = m.expandRequest(found.volume, step.Target, modes); err != nil {
			return 0, err
		}
	}
	if err := m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) { claim.BeginResize(pvc, step.Target, time.Now()) }); err != nil {
		return 0, err
	}
	if err := m.hit("expand/intent"); err != nil {
		return 0, err
	}
	if request == nil { // the node does all of it; the size is known beforehand
		return 0, m.hasGrown(found, step.Target, true)
	}
	if err := m.waitUntilIdle(found); err != nil {
		return 0, err
	}
	m.recordEvent(claimAbout(found.claim), false, reasonResizing, fmt.Sprintf("expanding volume %s to %s", request.GetVolumeId(), step.Target.String()))
	answer, err := driver.Client.ControllerExpandVolume(ctx, request)
	if err == nil {
		err = claim.CheckExpanded(request.GetVolumeId(), step.Target, answer.GetCapacityBytes())
	}
	if err != nil {
		return m.expandFailed(found, step, err)
	}
	m.learn(found.claim, func(t *tries) { t.expand = lifecycle.History{} })
	if err := m.hit("expand/called"); err != nil {
		return 0, err
	}
	return 0, m.hasGrown(found, quantity(answer.GetCapacityBytes()), answer.GetNodeExpansionRequired())
}

// waitUntilIdle fails for a volume in use whose driver refused to expand it in use.
func (m *Manager) waitUntilIdle(found bound) error {
	if !m.tries.get(string(found.claim.UID)).expand.NeedsIdle(time.Now()) {
		return nil
	}
	source := found.volume.Spec.CSI
	user, err := m.inUse(source.Driver, source.VolumeHandle)
	if err != nil || user == "" {
		return err
	}
	return fmt.Errorf("%w: %w", claim.ErrDriverFailed, lifecycle.InUseError(source.VolumeHandle, user))
}

func (m *Manager) expandRequest(volume *corev1.PersistentVolume, target resource.Quantity, modes claim.Modes) (*csi.ControllerExpandVolumeRequest, error) {
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
		Block: claim.IsBlock(volume.Spec.VolumeMode), FSType: volume.Spec.CSI.FSType, MountFlags: volume.Spec.MountOptions,
	}
}

func (m *Manager) expandFailed(found bound, step lifecycle.ExpandStep, failure error) (time.Duration, error) {
	then := lifecycle.AfterFailedExpand(step, failure, time.Now(), lifecycle.InfeasiblePause)
	m.learn(found.claim, func(t *tries) { t.expand = then.History })
	err := m.writeClaim(found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailResize(pvc, then.Outcome, shorten(failure.Error()), time.Now())
	})
	return pauseAfter(then, failure, err)
}

// pauseAfter returns a failed attempt's pause, unless its end could not be recorded.
func pauseAfter(then lifecycle.Failure, failure, recording error) (time.Duration, error) {
	if recording != nil {
		return 0, errors.Join(failure, recording)
	}
	return then.Pause, failure
}

// hasGrown writes the new size, of volume and claim at once.
func (m *Manager) hasGrown(found bound, size resource.Quantity, node bool) error {
	key := store.Key(found.claim.Namespace, found.claim.Name)
	err := m.update(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil {
			return err
		}
		volume, err := tx.Volumes().Get(found.volume.Name)
		if err != nil {
			return err
		}
		if pvc == nil || volume == nil || pvc.UID != found.claim.UID {
			return fmt.Errorf("%s vanished while its volume was expanded", claim.Describe(found.claim))
		}
		volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: size}
		// From here on the node's part is for what the driver really has.
		pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
		if node {
			remember(volume, pvc.Status.Capacity[corev1.ResourceStorage])
			claim.AwaitNode(pvc, time.Now())
		} else {
			claim.FinishResize(pvc, size)
			grewWith(volume, size)
		}
		return errors.Join(tx.Claims().Put(key, pvc), tx.Volumes().Put(volume.Name, volume))
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errStore, err)
	case node:
		m.recordEvent(claimAbout(found.claim), false, reasonNodeRequired, "the volume has grown; its filesystem grows on the node")
	default:
		m.recordEvent(claimAbout(found.claim), false, reasonResizeSuccessful, fmt.Sprintf("the volume has %s", size.String()))
	}
	return nil
}

// remember notes on a volume what its filesystem was made for or grown to last:
// if its claim goes before that grows, the next one has it grown.
func remember(volume *corev1.PersistentVolume, had resource.Quantity) {
	if _, marked := volume.Annotations[claim.PreResizeAnnotation]; marked || had.IsZero() {
		return
	}
	if volume.Annotations == nil {
		volume.Annotations = map[string]string{}
	}
	volume.Annotations[claim.PreResizeAnnotation] = had.String()
}

// grewWith takes the note off a volume whose filesystem has grown with it.
func grewWith(volume *corev1.PersistentVolume, size resource.Quantity) {
	if size.Cmp(sizeOf(volume)) >= 0 {
		delete(volume.Annotations, claim.PreResizeAnnotation)
	}
}

// stillToGrow is what the filesystem of a volume has that grew under an earlier
// claim and was not used since.
func stillToGrow(volume *corev1.PersistentVolume) (had resource.Quantity, pending bool) {
	text, marked := volume.Annotations[claim.PreResizeAnnotation]
	if !marked {
		return had, false
	}
	had, err := resource.ParseQuantity(text)
	return had, err == nil && had.Cmp(sizeOf(volume)) < 0
}

// writeClaim is editClaim for what must be written before the next step.
func (m *Manager) writeClaim(pvc *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolumeClaim)) error {
	if err := m.editClaim(pvc, change); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}
