package migration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	csitranslation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

const (
	driver = "ebs.csi.aws.com"
	plugin = "kubernetes.io/aws-ebs"
)

// inTree is a migrated PersistentVolume as the plugin wrote it.
func inTree(id string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{MigratedToAnnotation: driver, claim.ProvisionedByAnnotation: plugin}},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id, FSType: "xfs"},
		}},
	}
	for _, f := range change {
		f(pv)
	}
	return pv
}

func affinity(key string, zones ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: zones}},
		}}}}
	}
}

func label(key, value string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) { metav1.SetMetaDataLabel(&pv.ObjectMeta, key, value) }
}

func TestVolume_isTranslatedAsKubernetesDoes(t *testing.T) {
	for name, pv := range map[string]*corev1.PersistentVolume{
		"an ID":              inTree("vol-0123456789abcdef0"),
		"a URL":              inTree("aws://us-west-2a/vol-0123456789abcdef0"),
		"a URL without zone": inTree("aws:///vol-0123456789abcdef0"),
		"a partition": inTree("vol-1", func(pv *corev1.PersistentVolume) {
			pv.Spec.AWSElasticBlockStore.Partition, pv.Spec.AWSElasticBlockStore.ReadOnly = 2, true
		}),
		"a zone":                inTree("vol-1", affinity(corev1.LabelTopologyZone, "us-west-2a")),
		"an old zone":           inTree("vol-1", affinity(corev1.LabelFailureDomainBetaZone, "us-west-2a")),
		"a label":               inTree("vol-1", label(corev1.LabelTopologyZone, "us-west-2a")),
		"an old label":          inTree("vol-1", label(corev1.LabelFailureDomainBetaZone, "us-west-2a__us-west-2b")),
		"a label and a zone":    inTree("vol-1", label(corev1.LabelTopologyZone, "us-west-2b"), affinity(corev1.LabelTopologyZone, "us-west-2a")),
		"a label that is empty": inTree("vol-1", label(corev1.LabelTopologyZone, "")),
	} {
		before := pv.DeepCopy()
		got := For(driver).Volume(pv)
		want, err := csitranslation.New().TranslateInTreePVToCSI(klog.Background(), before.DeepCopy())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-library +here)\n%s", name, diff)
		}
		if diff := cmp.Diff(before, pv); diff != "" {
			t.Errorf("%s: the argument changed: %s", name, diff)
		}
	}
}

func TestVolume_leavesOthers(t *testing.T) {
	for name, pv := range map[string]*corev1.PersistentVolume{
		"not migrated":      inTree("vol-1", func(pv *corev1.PersistentVolume) { delete(pv.Annotations, MigratedToAnnotation) }),
		"another driver":    inTree("vol-1", func(pv *corev1.PersistentVolume) { pv.Annotations[MigratedToAnnotation] = "x.example.com" }),
		"no volume ID":      inTree("aws://us-west-2a/snap-1"),
		"a CSI volume":      {Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver}}}},
		"another plugin":    {Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "x"}}}},
		"an empty bookmark": {},
	} {
		if got := For(driver).Volume(pv); got != pv {
			t.Errorf("%s: it became %+v", name, got.Spec)
		}
	}
	if other := For("x.example.com"); other != nil || other.Plugin() != "" || other.InTree(inTree("vol-1")) {
		t.Error("a driver that replaced no plugin has a translator")
	}
	if pv := inTree("vol-1"); For("x.example.com").Volume(pv) != pv {
		t.Error("a driver that replaced no plugin translates a volume")
	}
}

func TestToInTree_isTheReverse(t *testing.T) {
	made := func(change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{claim.ProvisionedByAnnotation: plugin}},
			Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: "vol-1", FSType: "ext4", VolumeAttributes: map[string]string{claim.IdentityAttribute: "run-1"},
			}}},
		}
		for _, f := range change {
			f(pv)
		}
		return pv
	}
	for name, pv := range map[string]*corev1.PersistentVolume{
		"without a zone":       made(),
		"a zone":               made(affinity(corev1.LabelTopologyZone, "us-west-2a")),
		"the driver's zone":    made(affinity("topology.ebs.csi.aws.com/zone", "us-west-2a")),
		"a local zone":         made(affinity(corev1.LabelTopologyZone, "us-west-2-lax-1a")),
		"a partition":          made(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes["partition"] = "2" }),
		"without an identity":  made(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes = nil }),
		"read-only, and a tag": made(label("team", "a"), func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = true }),
	} {
		translator := For(driver)
		if !translator.InTree(pv) {
			t.Fatalf("%s: it is not of an in-tree class", name)
		}
		got, err := translator.ToInTree(pv)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, err := csitranslation.New().TranslateCSIPVToInTree(pv)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, MigratedToAnnotation, driver)
		if identity := pv.Spec.CSI.VolumeAttributes[claim.IdentityAttribute]; identity != "" {
			metav1.SetMetaDataAnnotation(&want.ObjectMeta, IdentityAnnotation, identity)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-library +here)\n%s", name, diff)
		}
		back := translator.Volume(got)
		if back.Spec.CSI == nil || back.Spec.CSI.VolumeHandle != "vol-1" || back.Spec.CSI.Driver != driver ||
			back.Spec.CSI.VolumeAttributes[claim.IdentityAttribute] != pv.Spec.CSI.VolumeAttributes[claim.IdentityAttribute] {
			t.Errorf("%s: it is read as %+v", name, back.Spec.CSI)
		}
	}
	if _, err := For(driver).ToInTree(made(affinity(corev1.LabelTopologyZone, "mars"))); err == nil {
		t.Error("a zone without a region has a translation")
	}
	if For(driver).InTree(made(func(pv *corev1.PersistentVolume) { pv.Annotations[claim.ProvisionedByAnnotation] = driver })) {
		t.Error("a volume of a CSI class is of an in-tree class")
	}
}

func TestClass_isTranslatedAsKubernetesDoes(t *testing.T) {
	allowed := []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{
		{Key: corev1.LabelFailureDomainBetaZone, Values: []string{"us-west-2a"}},
	}}}
	for name, class := range map[string]*storagev1.StorageClass{
		"nothing":          {},
		"a type":           {Parameters: map[string]string{"type": "io1", "iopsPerGB": "10", "fsType": "xfs", "encrypted": "true", "kmsKeyId": "k"}},
		"a zone":           {Parameters: map[string]string{"zone": "us-west-2a"}},
		"zones":            {Parameters: map[string]string{"zones": "us-west-2a,us-west-2b"}},
		"topologies":       {AllowedTopologies: allowed},
		"twice the zones":  {Parameters: map[string]string{"zone": "us-west-2a"}, AllowedTopologies: allowed},
		"an unknown key":   {Parameters: map[string]string{"tier": "fast"}},
		"a reserved param": {Parameters: map[string]string{"csi.storage.k8s.io/fstype": "ext4"}},
	} {
		class.Name, class.Provisioner = "old", plugin
		before := class.DeepCopy()
		got, err := For(driver).Class(class)
		want, wrong := csitranslation.New().TranslateInTreeStorageClassToCSI(klog.Background(), plugin, class)
		if (err == nil) != (wrong == nil) {
			t.Fatalf("%s: %v, the library has %v", name, err, wrong)
		}
		if err == nil {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: (-library +here)\n%s", name, diff)
			}
		}
		if diff := cmp.Diff(before, class); diff != "" {
			t.Errorf("%s: the argument changed: %s", name, diff)
		}
	}
	for _, provisioner := range []string{driver, "kubernetes.io/gce-pd"} {
		class := &storagev1.StorageClass{Provisioner: provisioner, Parameters: map[string]string{"zone": "z"}}
		if got, err := For(driver).Class(class); got != class || err != nil {
			t.Errorf("the class of %s became %+v (%v)", provisioner, got, err)
		}
	}
}
