package claim

import (
	"fmt"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Modes says which access modes of CSI a driver understands.
type Modes struct {
	// SingleNodeMultiWriter is the capability of that name: of the controller
	// for controller calls, of the node for node calls.
	SingleNodeMultiWriter bool
}

// AccessMode translates one access mode of Kubernetes.
func (m Modes) AccessMode(mode corev1.PersistentVolumeAccessMode) (csi.VolumeCapability_AccessMode_Mode, error) {
	switch mode {
	case corev1.ReadWriteOnce:
		if m.SingleNodeMultiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER, nil
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case corev1.ReadWriteOncePod:
		if m.SingleNodeMultiWriter {
			return csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, nil
		}
		return csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, nil
	case corev1.ReadOnlyMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, nil
	case corev1.ReadWriteMany:
		return csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, nil
	}
	return 0, fmt.Errorf("access mode %q is none of ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod", mode)
}

// Use is how a volume is used, apart from the access mode.
type Use struct {
	Block      bool
	FSType     string
	MountFlags []string
	// MountGroup is the pod's fsGroup for drivers that apply it themselves.
	MountGroup string
}

// Capability builds the CSI capability of one access mode.
func (u Use) Capability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if u.Block {
		capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return capability
	}
	capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
		FsType: u.FSType, MountFlags: slices.Clone(u.MountFlags), VolumeMountGroup: u.MountGroup,
	}}
	return capability
}

// Capabilities builds one capability per access mode, as CreateVolume requires them.
func (u Use) Capabilities(known Modes, modes []corev1.PersistentVolumeAccessMode) ([]*csi.VolumeCapability, error) {
	var capabilities []*csi.VolumeCapability
	for _, mode := range modes {
		translated, err := known.AccessMode(mode)
		if err != nil {
			return nil, err
		}
		capabilities = append(capabilities, u.Capability(translated))
	}
	return capabilities, nil
}

// NodeCapability is the capability of the node calls: the first access mode of
// the volume counts, ReadWriteOnce if there is none (the kubelet's rule).
func (u Use) NodeCapability(known Modes, modes []corev1.PersistentVolumeAccessMode) (*csi.VolumeCapability, error) {
	mode := corev1.ReadWriteOnce
	if len(modes) > 0 {
		mode = modes[0]
	}
	translated, err := known.AccessMode(mode)
	if err != nil {
		return nil, err
	}
	return u.Capability(translated), nil
}

// IsBlock reports whether a volume mode means a raw block device; nil is a filesystem.
func IsBlock(mode *corev1.PersistentVolumeMode) bool {
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}
