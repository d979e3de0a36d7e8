package claim

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resize has the sizes of a claim and its volume that decide the next step of an
// expansion (KEP 1790). Sizes that are absent are zero.
type Resize struct {
	// Desired is the requested size, spec.resources.requests; Granted is the size of the
	// volume as the claim reports it, status.capacity.
	Desired, Granted resource.Quantity
	// Volume is the capacity of the PersistentVolume.
	Volume resource.Quantity
	// Allocated is the size of the expansion in progress, and State its state:
	// status.allocatedResources and status.allocatedResourceStatuses.
	Allocated resource.Quantity
	State     corev1.ClaimResourceStatus
	// NodePending is the condition FileSystemResizePending.
	NodePending bool
	// NodeOnly: the driver grows volumes on the node alone.
	NodeOnly bool
	// Failed: the driver's last answer in this process said that nothing of
	// the attempt remains. It is unknown after a restart.
	Failed bool
}

// ResizeOf reads a claim and its volume.
func ResizeOf(pvc *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) Resize {
	return Resize{
		Desired:     pvc.Spec.Resources.Requests[corev1.ResourceStorage],
		Granted:     pvc.Status.Capacity[corev1.ResourceStorage],
		Volume:      volume.Spec.Capacity[corev1.ResourceStorage],
		Allocated:   pvc.Status.AllocatedResources[corev1.ResourceStorage],
		State:       pvc.Status.AllocatedResourceStatuses[corev1.ResourceStorage],
		NodePending: Condition(pvc, corev1.PersistentVolumeClaimFileSystemResizePending) != nil,
	}
}

// Asked reports whether the claim requests more than the volume has.
func (r Resize) Asked() bool { return r.Desired.Cmp(r.Granted) > 0 }

// Target returns the size to request from the driver; ok is false if the controller has
// nothing to do, because the kubelet must act.
//
// An expansion that was begun continues, unless the driver called the size infeasible: it
// may still run, and quota counts the larger of allocated and desired.
func (r Resize) Target() (target resource.Quantity, ok bool) {
	if r.Volume.Cmp(r.Desired) >= 0 {
		return r.targetOfGrown()
	}
	switch r.State {
	case corev1.PersistentVolumeClaimControllerResizeInProgress:
		if r.Failed {
			return r.Desired, true
		}
		return r.allocatedOr(r.Desired), true
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		target = r.allocatedOr(r.Desired)
		return target, r.Volume.Cmp(target) < 0
	case corev1.PersistentVolumeClaimNodeResizeInfeasible:
		return r.allocatedOr(r.Desired), true
	}
	return r.Desired, true
}

// targetOfGrown is for a volume that is as large as desired, so that the claim
// waits for its node, or was lowered by the user after the volume had grown.
func (r Resize) targetOfGrown() (target resource.Quantity, ok bool) {
	switch r.State {
	case corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress:
		return resource.Quantity{}, false
	case corev1.PersistentVolumeClaimNodeResizeInfeasible:
		if r.NodeOnly {
			return r.Desired, true
		}
	case "":
		if r.Allocated.IsZero() && r.NodePending {
			return resource.Quantity{}, false
		}
	}
	return r.allocatedOr(r.Desired), true
}

func (r Resize) allocatedOr(other resource.Quantity) resource.Quantity {
	if r.Allocated.IsZero() {
		return other
	}
	return r.Allocated
}

// Repeats reports whether a target is the one that the driver called infeasible.
func (r Resize) Repeats(target resource.Quantity) bool {
	return r.State == corev1.PersistentVolumeClaimControllerResizeInfeasible && r.Allocated.Cmp(target) == 0
}

// CheckExpanded returns an error if the driver's answer is less than the requested size:
// the status must not report a growth that did not happen (external-resizer#474).
func CheckExpanded(handle string, target resource.Quantity, answer int64) error {
	if answer < target.Value() {
		return fmt.Errorf("the driver says that volume %q was expanded, but to %d bytes, less than the %d asked for: %w",
			handle, answer, target.Value(), ErrDriverFailed)
	}
	return nil
}
