package claim

import (
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// FoldAccessModes makes the one access mode of a call that takes a single
// capability (ControllerPublishVolume, ControllerExpandVolume) from all the
// access modes of a PersistentVolume. ReadWriteMany allows everything the others
// do, so it wins. ReadWriteOncePod allows no other mode, and ReadOnlyMany
// with ReadWriteOnce has no equivalent in CSI: both are errors, as is an empty list.
func FoldAccessModes(
	known Modes, modes []corev1.PersistentVolumeAccessMode,
) (csi.VolumeCapability_AccessMode_Mode, error) {
	if len(modes) == 0 {
		return 0, errors.New("the volume has no access mode")
	}
	given := map[corev1.PersistentVolumeAccessMode]bool{}
	for _, mode := range modes {
		if _, err := known.AccessMode(mode); err != nil {
			return 0, err
		}
		given[mode] = true
	}
	switch {
	case given[corev1.ReadWriteOncePod] && len(given) > 1:
		return 0, fmt.Errorf("access modes %v: ReadWriteOncePod allows no other mode", modes)
	case given[corev1.ReadWriteMany]:
		return known.AccessMode(corev1.ReadWriteMany)
	case given[corev1.ReadOnlyMany] && given[corev1.ReadWriteOnce]:
		return 0, fmt.Errorf("access modes %v: CSI has no mode for ReadOnlyMany and ReadWriteOnce on one volume", modes)
	}
	return known.AccessMode(modes[0]) // one distinct mode is left
}
