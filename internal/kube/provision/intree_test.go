package provision

import (
	"errors"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	ebsDriver  = "ebs.csi.aws.com"
	inTreeName = "kubernetes.io/aws-ebs"
)

// inTreeWorld is a cluster with the driver that replaced an in-tree plugin.
func inTreeWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	driver := csidriver.New(ebsDriver)
	driver.Creation.Strict = true
	w := &world{t: t}
	driver.Before = w.before
	w.Cluster = apiserver.New(t, driver, objects...)
	return w
}

func ofPlugin(class *storagev1.StorageClass) {
	class.Provisioner, class.Parameters = inTreeName, map[string]string{"type": "io1", "iopsPerGB": "10", "fsType": "xfs"}
}

// annotated is a claim with the annotations that a controller-manager writes.
func annotated(pairs ...string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Annotations = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			pvc.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// A claim of an in-tree class gets a volume of the driver, and a PersistentVolume of the
// plugin, as with the sidecars of the driver.
func TestInTree_claimsGetVolumesOfThePlugin(t *testing.T) {
	for name, annotations := range map[string]func(*corev1.PersistentVolumeClaim){
		"named for the driver": annotated(provisionerAnnotation, ebsDriver),
		"migrated":             annotated(provisionerAnnotation, inTreeName, migration.MigratedToAnnotation, ebsDriver),
		"an old annotation":    annotated(betaProvisionerAnnotation, inTreeName, migration.MigratedToAnnotation, ebsDriver),
	} {
		t.Run(name, func(t *testing.T) {
			w := inTreeWorld(t, newClass(ofPlugin), newClaim("a", annotations))
			w.run()
			pv := w.saved("pvc-uid-a")
			source := pv.Spec.AWSElasticBlockStore
			if source == nil || pv.Spec.CSI != nil || source.VolumeID != "id-pvc-uid-a" || source.FSType != "xfs" {
				t.Errorf("the PersistentVolume is of %+v", pv.Spec.PersistentVolumeSource)
			}
			for key, want := range map[string]string{
				claim.ProvisionedByAnnotation: inTreeName, migration.MigratedToAnnotation: ebsDriver,
			} {
				if got := pv.Annotations[key]; got != want {
					t.Errorf("the annotation %s is %q, want %q", key, got, want)
				}
			}
			asked := w.calls()[0]
			if got := asked.GetParameters(); got["type"] != "io1" || got["iopsPerGB"] != "10" || got["allowautoiopspergbincrease"] != "true" || got["fsType"] != "" {
				t.Errorf("the driver got the parameters %v", got)
			}
			if fs := asked.GetVolumeCapabilities()[0].GetMount().GetFsType(); fs != "xfs" {
				t.Errorf("the filesystem is %q", fs)
			}
		})
	}
}

// A claim that the controller-manager has not migrated is the plugin's: if that serves it,
// the claim would get two volumes.
func TestInTree_claimsThatAreNotMigratedWait(t *testing.T) {
	w := inTreeWorld(t, newClass(ofPlugin))
	w.run()
	w.Add(newClaim("a", annotated(provisionerAnnotation, inTreeName)))
	w.Add(newClaim("b", annotated(betaProvisionerAnnotation, inTreeName)))
	w.Add(newClaim("c", annotated(provisionerAnnotation, ebsDriver))) // and what follows is served
	w.saved("pvc-uid-c")
	if calls := w.calls(); len(calls) != 1 {
		t.Errorf("%d calls, %v; want that of the last claim alone", len(calls), calls)
	}
	pvc := w.claimNow("a")
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, migration.MigratedToAnnotation, ebsDriver)
	w.Put(pvc)
	w.saved("pvc-uid-a")
}

// The volume of the claim's class is deleted with its PersistentVolume.
func TestInTree_releasedVolumesAreDeleted(t *testing.T) {
	w := inTreeWorld(t, newClass(ofPlugin))
	w.controllerManager()
	w.run()
	pvc := newClaim("a", annotated(provisionerAnnotation, ebsDriver))
	w.Add(pvc)
	w.saved("pvc-uid-a")
	w.Eventually(func() error {
		if w.claimNow("a").Spec.VolumeName == "" {
			return errors.New("the claim is not bound")
		}
		return nil
	})
	w.Delete(pvc)
	w.gone()
}

// A PersistentVolume of the plugin whose migration was reverted, or never happened, is
// not this driver's.
func TestInTree_volumesThatAreNotMigratedStay(t *testing.T) {
	stays := newVolume("old", released, func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}
		pv.Annotations[claim.ProvisionedByAnnotation] = inTreeName
	})
	w := inTreeWorld(t, newClass(ofPlugin), stays)
	w.run()
	w.Add(newClaim("a", annotated(provisionerAnnotation, ebsDriver))) // and what follows is served
	w.saved("pvc-uid-a")
	if pv := w.pv("pvc-uid-old"); pv == nil || pv.DeletionTimestamp != nil {
		t.Error("the PersistentVolume was deleted")
	}
}

// Classes whose parameters have no translation are explained on the claim.
func TestInTree_classWithoutATranslation(t *testing.T) {
	w := inTreeWorld(t, newClass(ofPlugin, parameters("zone", "us-west-2a"), func(class *storagev1.StorageClass) {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
			{Key: corev1.LabelTopologyZone, Values: []string{"us-west-2a"}},
		}}}
	}), newClaim("a", annotated(provisionerAnnotation, ebsDriver)))
	w.run()
	w.event("Warning ProvisioningFailed ns/a", "translate it to driver "+ebsDriver)
	if len(w.calls()) > 0 {
		t.Errorf("%d calls", len(w.calls()))
	}
}

// A volume whose zone has no region cannot be one of the plugin. It is deleted.
func TestInTree_volumeWithoutATranslationIsDeleted(t *testing.T) {
	w := inTreeWorld(t, newClass(ofPlugin))
	w.Driver.Creation.Answer = func(_ *csi.CreateVolumeRequest, volume *csi.Volume) {
		volume.AccessibleTopology = []*csi.Topology{{Segments: map[string]string{corev1.LabelTopologyZone: "mars"}}}
	}
	w.Add(newClaim("a", annotated(provisionerAnnotation, ebsDriver)))
	w.run()
	w.event("Warning ProvisioningFailed ns/a", "translate it to the in-tree plugin")
	w.Eventually(func() error {
		if volumes := w.Driver.Volumes(); len(volumes)+w.stored() > 0 {
			return fmt.Errorf("volumes %v, %d intents", volumes, w.stored())
		}
		return nil
	})
}

// A process that dies at any step of the creation of an in-tree volume leaves one volume
// with its PersistentVolume, or none if the claim is gone.
func TestInTree_crashWhileAVolumeIsMade(t *testing.T) {
	for _, point := range createPoints() {
		for _, deleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deleted %t", point, deleted), func(t *testing.T) {
				t.Parallel()
				w := inTreeWorld(t, newClass(ofPlugin))
				pvc := newClaim("a", annotated(provisionerAnnotation, ebsDriver))
				w.crash(point, func() { w.Add(pvc) })
				if deleted {
					w.Delete(pvc)
				}
				w.controllerManager()
				w.run()
				if deleted {
					w.ended(point, "a")
					return
				}
				w.Eventually(func() error {
					pv := w.pv("pvc-uid-a")
					if pv == nil || pv.Spec.AWSElasticBlockStore == nil || len(w.Driver.Volumes()) != 1 || w.stored() > 0 {
						return fmt.Errorf("PersistentVolume %+v, volumes %v, %d intents", pv, w.Driver.Volumes(), w.stored())
					}
					return nil
				})
			})
		}
	}
}

// An answer of the API server that is lost does not lead to a second volume.
func TestInTree_lostAnswerOfTheAPIServer(t *testing.T) {
	w := inTreeWorld(t, newClass(ofPlugin))
	lost := 3
	w.LoseAnswers("create", "persistentvolumes", func(apiserver.Request) error {
		if lost--; lost >= 0 {
			return errors.New("etcdserver: leader changed")
		}
		return nil
	})
	w.answer(csidriver.Fail(codes.Unavailable, "away"))
	w.Add(newClaim("a", annotated(provisionerAnnotation, ebsDriver)))
	w.run()
	w.Eventually(func() error {
		if pv := w.pv("pvc-uid-a"); pv == nil || len(w.Driver.Volumes()) != 1 || w.stored() > 0 {
			return fmt.Errorf("PersistentVolume %v, volumes %v, %d intents", pv, w.Driver.Volumes(), w.stored())
		}
		return nil
	})
}
