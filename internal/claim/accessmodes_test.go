package claim

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

func TestFoldAccessModes(t *testing.T) {
	const (
		rwo, rwop  = corev1.ReadWriteOnce, corev1.ReadWriteOncePod
		rox, rwx   = corev1.ReadOnlyMany, corev1.ReadWriteMany
		writer     = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		multi      = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		single     = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		readers    = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		writers    = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		impossible = csi.VolumeCapability_AccessMode_UNKNOWN
	)
	for _, c := range []struct {
		modes       []corev1.PersistentVolumeAccessMode
		old, modern csi.VolumeCapability_AccessMode_Mode // without and with SINGLE_NODE_MULTI_WRITER
	}{
		{nil, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{"Sometimes"}, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{rwx, "Sometimes"}, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{rwo}, writer, multi},
		{[]corev1.PersistentVolumeAccessMode{rwo, rwo}, writer, multi},
		{[]corev1.PersistentVolumeAccessMode{rwop}, writer, single},
		{[]corev1.PersistentVolumeAccessMode{rox}, readers, readers},
		{[]corev1.PersistentVolumeAccessMode{rwx}, writers, writers},
		{[]corev1.PersistentVolumeAccessMode{rwo, rwx}, writers, writers},
		{[]corev1.PersistentVolumeAccessMode{rox, rwx}, writers, writers},
		{[]corev1.PersistentVolumeAccessMode{rwo, rox, rwx}, writers, writers},
		{[]corev1.PersistentVolumeAccessMode{rwo, rox}, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{rwop, rwo}, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{rwop, rox}, impossible, impossible},
		{[]corev1.PersistentVolumeAccessMode{rwx, rwop}, impossible, impossible},
	} {
		for known, want := range map[Modes]csi.VolumeCapability_AccessMode_Mode{{}: c.old, {SingleNodeMultiWriter: true}: c.modern} {
			got, err := FoldAccessModes(known, c.modes)
			if (err != nil) != (want == impossible) || err == nil && got != want {
				t.Errorf("FoldAccessModes(%v, %v) = %v, %v, want %v", known, c.modes, got, err, want)
			}
		}
	}
}
