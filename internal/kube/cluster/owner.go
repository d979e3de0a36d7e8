package cluster

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// OwnsVolume reports whether a volume of the driver is this process's to change.
// In a node's scope a volume without an affinity, such as one that an
// administrator wrote down, belongs to each node whose driver knows it: drivers
// answer NOT_FOUND for a volume that they do not have (CSI spec 1.13,
// ValidateVolumeCapabilities, which every controller serves). So does one that a process of this
// node has begun to delete.
func (e *Env) OwnsVolume(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
	if !e.Scope.Unplaced(volume) {
		return e.Scope.OwnsVolume(volume), nil
	}
	if volume.Annotations[claim.DeletingNodeAnnotation] == e.Scope.Node {
		return true, nil
	}
	source := volume.Spec.CSI
	use := claim.Use{Block: claim.IsBlock(volume.Spec.VolumeMode), FSType: source.FSType, MountFlags: volume.Spec.MountOptions}
	mode, err := claim.FoldAccessModes(claim.Modes{}, volume.Spec.AccessModes)
	if err != nil {
		return false, fmt.Errorf("PersistentVolume %q: %w", volume.Name, err)
	}
	calling, cancel := e.Call(ctx)
	defer cancel()
	_, err = e.CSI.ValidateVolumeCapabilities(calling, &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: source.VolumeHandle, VolumeContext: source.VolumeAttributes,
		VolumeCapabilities: []*csi.VolumeCapability{use.Capability(mode)},
	})
	switch {
	case lifecycle.IsAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("whether PersistentVolume %q, which has no node affinity, is on node %q: %w", volume.Name, e.Scope.Node, err)
	}
	return true, nil
}
