package volumes

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// grow makes a volume as large as its claim wants by now. The filesystem
// follows when the volume is published.
func (m *Manager) grow(ctx context.Context, found bound) error {
	wanted := found.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	has := found.volume.Spec.Capacity[corev1.ResourceStorage]
	if wanted.Cmp(has) <= 0 {
		return nil
	}
	key := store.Key(found.claim.Namespace, found.claim.Name)
	if err := m.mayGrow(found.claim); err != nil {
		return err
	}
	return m.step(ctx, claimLabel(key), StepExpand, m.onward(claim.CallExpand), func(ctx context.Context) (string, error) {
		driver, err := m.options.Drivers.Driver(found.volume.Spec.CSI.Driver)
		if err != nil {
			return "", err
		}
		err = m.expand(ctx, driver, found, wanted.Value())
		return fmt.Sprintf("%s → %s", has.String(), wanted.String()), err
	})
}

func (m *Manager) mayGrow(pvc *corev1.PersistentVolumeClaim) error {
	class, err := m.classOf(pvc)
	if err != nil {
		return err
	}
	if class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion {
		return fmt.Errorf("%s: spec.resources.requests.storage: StorageClass %q does not say allowVolumeExpansion: true",
			claim.Describe(pvc), class.Name)
	}
	return nil
}

// expand records the wish, calls the controller if the driver has one for
// that, and records the result. A driver that grows on the node only is asked there.
func (m *Manager) expand(ctx context.Context, driver *plugins.Driver, found bound, size int64) error {
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err != nil {
		return err
	}
	node, err := driver.Client.NodeCapabilities(ctx)
	if err != nil {
		return err
	}
	if !can.Expand && !node.Expand {
		return fmt.Errorf("%w: driver %s does not expand volumes (EXPAND_VOLUME)", claim.ErrDriverFailed, driver.Name)
	}
	if err := m.recordResize(found, size, corev1.PersistentVolumeClaimControllerResizeInProgress); err != nil {
		return err
	}
	if err := m.hit("expand/intent"); err != nil {
		return err
	}
	reached, nodeToo := size, true
	if can.Expand {
		if reached, nodeToo, err = controllerExpand(ctx, driver, found.volume, size); err != nil {
			return err
		}
	}
	if err := m.hit("expand/called"); err != nil {
		return err
	}
	if nodeToo && node.Expand {
		return m.recordResize(found, reached, corev1.PersistentVolumeClaimNodeResizePending)
	}
	return m.recordResize(found, reached, "")
}

func controllerExpand(ctx context.Context, driver *plugins.Driver, volume *corev1.PersistentVolume, size int64) (int64, bool, error) {
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err != nil {
		return 0, false, err
	}
	capability, err := useOf(volume).NodeCapability(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, volume.Spec.AccessModes)
	if err != nil {
		return 0, false, err
	}
	answer, err := driver.Client.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
		VolumeId: volume.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: size}, VolumeCapability: capability,
	})
	if err != nil {
		return 0, false, err
	}
	if answer.GetCapacityBytes() < size {
		return 0, false, fmt.Errorf("%w: it answered ControllerExpandVolume with %d bytes, less than the %d asked for",
			claim.ErrDriverFailed, answer.GetCapacityBytes(), size)
	}
	return answer.GetCapacityBytes(), answer.GetNodeExpansionRequired(), nil
}

func useOf(volume *corev1.PersistentVolume) claim.Use {
	return claim.Use{
		Block: claim.IsBlock(volume.Spec.VolumeMode), FSType: volume.Spec.CSI.FSType, MountFlags: volume.Spec.MountOptions,
	}
}

// recordResize writes where an expansion stands; status "" means that it is done.
func (m *Manager) recordResize(found bound, size int64, status corev1.ClaimResourceStatus) error {
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
		if pvc == nil || volume == nil {
			return fmt.Errorf("%s vanished while its volume was expanded", claim.Describe(found.claim))
		}
		pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: quantity(size)}
		pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: status}
		if status == "" {
			pvc.Status.AllocatedResourceStatuses = nil
			pvc.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: quantity(size)}
		}
		if status != corev1.PersistentVolumeClaimControllerResizeInProgress {
			volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: quantity(size)}
		}
		return errors.Join(tx.Claims().Put(key, pvc), tx.Volumes().Put(volume.Name, volume))
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return nil
}
