package resize

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/migration"
)

const ebsDriver = "ebs.csi.aws.com"

// inTree is a PersistentVolume of the plugin that the driver replaced.
func inTree(pv *corev1.PersistentVolume) {
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "handle-1", FSType: "xfs"}}
	metav1.SetMetaDataAnnotation(&pv.ObjectMeta, migration.MigratedToAnnotation, ebsDriver)
}

// A claim of an in-tree volume grows as one of the driver, and the PersistentVolume keeps
// its form.
func TestInTree_volumeGrows(t *testing.T) {
	w := newWorldOf(t, ebsDriver, dataVolume(inTree), dataClaim())
	w.run()
	w.change(asking(3))
	w.reaches(nodePending, 3)
	pv := w.volume()
	if pv.Spec.CSI != nil || pv.Spec.AWSElasticBlockStore == nil || inGi(pv.Spec.Capacity) != 3 {
		t.Errorf("the PersistentVolume is of %+v with %s", pv.Spec.PersistentVolumeSource, pv.Spec.Capacity.Storage())
	}
	asked, ok := w.lastRequest().(*csi.ControllerExpandVolumeRequest)
	if !ok || asked.GetVolumeId() != "handle-1" || asked.GetVolumeCapability().GetMount().GetFsType() != "xfs" {
		t.Errorf("the driver got %+v", asked)
	}
	w.kubelet()
	w.Eventually(func() error {
		if pvc := w.claim(); inGi(pvc.Status.Capacity) != 3 || state(pvc) != "" {
			return errors.New("the claim has not grown")
		}
		return nil
	})
}

// A claim of an in-tree volume changes its attributes.
func TestInTree_volumeIsModified(t *testing.T) {
	fast := class("fast")
	fast.DriverName = ebsDriver
	w := newWorldOf(t, ebsDriver, dataVolume(inTree), dataClaim(), fast)
	w.run()
	w.change(wanting("fast"))
	w.called(modifyRPC, 1)
	if asked, ok := w.lastRequest().(*csi.ControllerModifyVolumeRequest); !ok || asked.GetVolumeId() != "handle-1" {
		t.Errorf("the driver got %+v", asked)
	}
}

// A volume that was not migrated to the driver is not grown.
func TestInTree_volumeThatIsNotMigratedStays(t *testing.T) {
	w := newWorldOf(t, ebsDriver, dataVolume(inTree, func(pv *corev1.PersistentVolume) { pv.Annotations = nil }), dataClaim())
	w.run()
	w.change(asking(3))
	w.staysAt(expandRPC, 0)
}
