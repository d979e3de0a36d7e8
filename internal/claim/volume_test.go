package claim

import (
	"errors"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestTemplate_holdsAllThatLaterCallsNeed(t *testing.T) {
	vac := "gold"
	claim := pvc(func(p *corev1.PersistentVolumeClaim) {
		p.ResourceVersion, p.Spec.VolumeAttributesClassName = "7", &vac
		p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	})
	ref := func(name string) *corev1.SecretReference {
		return &corev1.SecretReference{Name: name, Namespace: "ns"}
	}
	creation := Creation{Class: parsed(t, map[string]string{"csi.storage.k8s.io/fstype": "ext4"}), Claim: claim, VolumeName: "vol-short"}
	template := creation.Template(VolumeOptions{
		Policy: corev1.PersistentVolumeReclaimDelete, Finalizers: []string{"a", "b"}, Identity: "me", ReadOnly: true,
		Secrets: map[SecretUse]*corev1.SecretReference{
			SecretProvision: ref("provision"), SecretControllerModify: ref("modify"), SecretControllerPublish: ref("attach"),
			SecretNodeStage: ref("stage"), SecretNodePublish: ref("publish"), SecretControllerExpand: ref("grow"), SecretNodeExpand: ref("node-grow"),
		},
	})
	request := &csi.CreateVolumeRequest{CapacityRange: &csi.CapacityRange{RequiredBytes: 5}}
	got := FillVolume(template, request, &csi.Volume{VolumeId: "v", VolumeContext: map[string]string{"k": "v", IdentityAttribute: "forged"}})
	wantAnnotations := map[string]string{
		"pv.kubernetes.io/provisioned-by":                            "d.example",
		"volume.kubernetes.io/provisioner-deletion-secret-name":      "provision",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace": "ns",
		"volume.kubernetes.io/controller-modify-secret-name":         "modify",
		"volume.kubernetes.io/controller-modify-secret-namespace":    "ns",
	}
	wantSource := &corev1.CSIPersistentVolumeSource{
		Driver: "d.example", VolumeHandle: "v", FSType: "ext4", ReadOnly: true,
		VolumeAttributes:           map[string]string{"k": "v", "storage.kubernetes.io/csiProvisionerIdentity": "me"},
		ControllerPublishSecretRef: ref("attach"), NodeStageSecretRef: ref("stage"), NodePublishSecretRef: ref("publish"),
		ControllerExpandSecretRef: ref("grow"), NodeExpandSecretRef: ref("node-grow"),
	}
	size := got.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case got.Name != "vol-short" || !cmp.Equal(got.Finalizers, []string{"a", "b"}):
		t.Errorf("name %s, finalizers %v", got.Name, got.Finalizers)
	case !cmp.Equal(got.Annotations, wantAnnotations):
		t.Error(cmp.Diff(wantAnnotations, got.Annotations))
	case !cmp.Equal(got.Spec.CSI, wantSource):
		t.Error(cmp.Diff(wantSource, got.Spec.CSI))
	case *got.Spec.VolumeAttributesClassName != "gold" || got.Spec.ClaimRef.ResourceVersion != "7" || size.Value() != 5:
		t.Errorf("class %v, claim %v, size %v", got.Spec.VolumeAttributesClassName, got.Spec.ClaimRef, got.Spec.Capacity)
	case template.Spec.CSI.VolumeHandle != "" || len(template.Spec.CSI.VolumeAttributes) != 1:
		t.Errorf("the template was changed: %v", template.Spec.CSI)
	}
}

func TestTemplate_withoutSecretsSaysSo(t *testing.T) {
	got := Creation{Class: parsed(t, nil), Claim: pvc()}.Template(VolumeOptions{Secrets: map[SecretUse]*corev1.SecretReference{}})
	if value, found := got.Annotations[DeletionSecretNameAnnotation]; !found || value != "" {
		t.Errorf("annotations %v", got.Annotations)
	}
}

func TestAffinity(t *testing.T) {
	topology := func(pairs ...string) *csi.Topology {
		segments := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			segments[pairs[i]] = pairs[i+1]
		}
		return &csi.Topology{Segments: segments}
	}
	cases := []struct {
		name       string
		topologies []*csi.Topology
		want       []int // expressions per term
	}{
		{"none", nil, nil},
		{"one segment", []*csi.Topology{topology("zone", "a")}, []int{1}},
		{"two segments", []*csi.Topology{topology("zone", "a", "rack", "1")}, []int{2}},
		{"two topologies, one of them empty", []*csi.Topology{topology("zone", "a"), {}, topology("zone", "b")}, []int{1, 1}},
		{"empty ones only", []*csi.Topology{{}, {}}, nil},
	}
	for _, c := range cases {
		var got []int
		if affinity := affinity(c.topologies); affinity != nil {
			for _, term := range affinity.Required.NodeSelectorTerms {
				got = append(got, len(term.MatchExpressions))
			}
		}
		if !cmp.Equal(c.want, got) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestCheckAccessibleTopology_refusesAContradictionOnly(t *testing.T) {
	in := func(zone string) []*csi.Topology { return []*csi.Topology{{Segments: map[string]string{"zone": zone}}} }
	cases := []struct {
		name         string
		asked, given []*csi.Topology
		fits         bool
	}{
		{"the same", in("a"), in("a"), true},
		{"another", in("a"), in("b"), false},
		{"one of two", append(in("a"), in("b")...), in("b"), true},
		{"nothing asked", nil, in("b"), true},
		{"nothing answered", in("a"), nil, true},
		{"other keys", in("a"), []*csi.Topology{{Segments: map[string]string{"rack": "1"}}}, true},
	}
	for _, c := range cases {
		request := &csi.CreateVolumeRequest{AccessibilityRequirements: &csi.TopologyRequirement{Requisite: c.asked}}
		err := CheckAccessibleTopology(request, &csi.Volume{VolumeId: "v", AccessibleTopology: c.given})
		if (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), `volume "v" in {zone=b}, which is none of the topologies asked for, {zone=a}`) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSourceOf_leavesPopulatorsAlone(t *testing.T) {
	group := "populators.example"
	for kind, populated := range map[string]bool{"Git": true, "VolumeSnapshot": false} {
		_, err := SourceOf(pvc(func(p *corev1.PersistentVolumeClaim) {
			p.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: &group, Kind: kind, Name: "x"}
		}))
		if err == nil || errors.Is(err, ErrPopulated) != populated {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestRequest_withoutLimitAndWithItsOwnName(t *testing.T) {
	claim := pvc(func(p *corev1.PersistentVolumeClaim) {
		p.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: p.Spec.Resources.Requests[corev1.ResourceStorage]}
	})
	got, err := Creation{
		Class: parsed(t, nil), Claim: claim, NoLimit: true, VolumeName: "short", MutableParameters: map[string]string{"iops": "9"}, ExtraMetadata: true,
	}.Request()
	if err != nil || got.GetCapacityRange().GetLimitBytes() != 0 || got.GetName() != "short" ||
		got.GetMutableParameters()["iops"] != "9" || got.GetParameters()["csi.storage.k8s.io/pv/name"] != "short" {
		t.Errorf("%v, %v", got, err)
	}
}
