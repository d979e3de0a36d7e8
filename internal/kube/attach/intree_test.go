package attach

import (
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/migration"
)

const (
	ebsDriver    = "ebs.csi.aws.com"
	ebsFinalizer = "external-attacher/ebs-csi-aws-com"
)

// inTreeVolume is a PersistentVolume of the plugin that the driver replaced.
func inTreeVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	return volume(name, append([]func(*corev1.PersistentVolume){func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
			VolumeID: "aws://us-west-2a/vol-" + name, FSType: "xfs", Partition: 1,
		}}
		pv.Annotations = map[string]string{migration.MigratedToAnnotation: ebsDriver}
	}}, change...)...)
}

func ebsNode(name string) *storagev1.CSINode {
	registered := node(name)
	registered.Spec.Drivers = []storagev1.CSINodeDriver{{Name: ebsDriver, NodeID: "id-" + name}}
	return registered
}

func ofEBS(va *storagev1.VolumeAttachment) { va.Spec.Attacher = ebsDriver }

// The PersistentVolume is attached and detached by the ID of its disk, and keeps its form.
func TestInTree_volumeIsAttachedAndDetached(t *testing.T) {
	w := newWorldOf(t, ebsDriver, ebsNode("n1"), inTreeVolume("pv"))
	published := requests[*csi.ControllerPublishVolumeRequest](w, "ControllerPublishVolume")
	w.run()
	va := attachment("va", "pv", "n1", ofEBS)
	w.Add(va)
	w.attached("va")
	asked := next(t, published)
	if asked.GetVolumeId() != "vol-pv" || asked.GetNodeId() != "id-n1" || asked.GetVolumeContext()["partition"] != "1" ||
		asked.GetVolumeCapability().GetMount().GetFsType() != "xfs" {
		t.Errorf("the driver got %+v", asked)
	}
	if pv := w.volume("pv"); pv.Spec.CSI != nil || pv.Spec.AWSElasticBlockStore == nil || len(pv.Finalizers) != 1 || pv.Finalizers[0] != ebsFinalizer {
		t.Errorf("the PersistentVolume became %+v, finalizers %q", pv.Spec.PersistentVolumeSource, pv.Finalizers)
	}
	if got := w.attachment("va").Annotations[HandleAnnotation]; got != "vol-pv" {
		t.Errorf("the attachment names the volume %q", got)
	}
	w.detaches(va)
}

// An attachment waits until the controller-manager has marked the volume as migrated.
func TestInTree_attachmentWaitsForTheMigration(t *testing.T) {
	w := newWorldOf(t, ebsDriver, ebsNode("n1"), inTreeVolume("pv", func(pv *corev1.PersistentVolume) { pv.Annotations = nil }))
	w.run()
	w.Add(attachment("va", "pv", "n1", ofEBS))
	w.Eventually(func() error {
		if va := w.attachment("va"); va.Status.AttachError == nil {
			return fmt.Errorf("no error: %+v", va.Status)
		}
		return nil
	})
	w.Put(inTreeVolume("pv"))
	w.attached("va")
}

// A volume whose migration was reverted is left without the attacher's finalizer.
func TestInTree_volumeIsReleasedWhenItsMigrationIsReverted(t *testing.T) {
	w := newWorldOf(t, ebsDriver, inTreeVolume("pv", func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{ebsFinalizer} }))
	w.run()
	back := w.volume("pv")
	back.Annotations = nil
	if _, err := w.Core.CoreV1().PersistentVolumes().Update(t.Context(), back, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.Eventually(func() error {
		if got := w.volume("pv").Finalizers; len(got) > 0 {
			return fmt.Errorf("finalizers %q", got)
		}
		return nil
	})
}

// A pod's own volume of the plugin arrives as the controller-manager translates it.
func TestInTree_inlineVolumeIsAttached(t *testing.T) {
	w := newWorldOf(t, ebsDriver, ebsNode("n1"))
	published := requests[*csi.ControllerPublishVolumeRequest](w, "ControllerPublishVolume")
	w.run()
	inline := migration.For(ebsDriver).Volume(inTreeVolume("x")).Spec
	va := attachment("va", "", "n1", ofEBS)
	va.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: &inline}
	w.Add(va)
	w.attached("va")
	if asked := next(t, published); asked.GetVolumeId() != "vol-x" {
		t.Errorf("the driver got volume %s", asked.GetVolumeId())
	}
	w.detaches(va)
}
