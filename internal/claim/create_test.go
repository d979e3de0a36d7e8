package claim

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func pvc(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "ns", UID: "uid-1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, c := range change {
		c(claim)
	}
	return claim
}

func block(p *corev1.PersistentVolumeClaim) {
	mode := corev1.PersistentVolumeBlock
	p.Spec.VolumeMode = &mode
}

func parsed(t *testing.T, parameters map[string]string) Class {
	t.Helper()
	c, err := ParseClass(class(parameters))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mounted(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: []string{"noatime"}}},
	}
}

func TestRequest_isWhatTheProvisionerSends(t *testing.T) {
	xfs := map[string]string{"csi.storage.k8s.io/fstype": "xfs", "tier": "a"}
	here := []*csi.Topology{{Segments: map[string]string{"zone": "a"}}}
	cases := []struct {
		name     string
		creation Creation
		want     *csi.CreateVolumeRequest
	}{
		{"filesystem", Creation{Class: parsed(t, xfs), Claim: pvc()}, &csi.CreateVolumeRequest{
			Name: "pvc-uid-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Parameters: map[string]string{"tier": "a"},
			VolumeCapabilities: []*csi.VolumeCapability{mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)},
		}},
		{"several modes, a limit, metadata and a topology", Creation{
			Class: parsed(t, xfs), Modes: Modes{SingleNodeMultiWriter: true}, ExtraMetadata: true, Topology: Here(map[string]string{"zone": "a"}),
			Claim: pvc(func(p *corev1.PersistentVolumeClaim) {
				p.Spec.AccessModes = append(p.Spec.AccessModes, corev1.ReadOnlyMany)
				p.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
			}),
		}, &csi.CreateVolumeRequest{
			Name: "pvc-uid-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30, LimitBytes: 2 << 30},
			Parameters: map[string]string{
				"tier": "a", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "ns", "csi.storage.k8s.io/pv/name": "pvc-uid-1",
			},
			VolumeCapabilities: []*csi.VolumeCapability{
				mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER), mounted(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
			},
			AccessibilityRequirements: &csi.TopologyRequirement{Requisite: here, Preferred: here},
		}},
		{"a block copy of a volume", Creation{Class: parsed(t, nil), Claim: pvc(block), Source: Source{VolumeHandle: "vol-9"}}, &csi.CreateVolumeRequest{
			Name: "pvc-uid-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Parameters: map[string]string{},
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
				AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			}},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "vol-9"}}},
		}},
		{"a snapshot restored", Creation{Class: parsed(t, xfs), Claim: pvc(), Source: Source{SnapshotHandle: "snap-9"}}, &csi.CreateVolumeRequest{
			Name: "pvc-uid-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Parameters: map[string]string{"tier": "a"},
			VolumeCapabilities:  []*csi.VolumeCapability{mounted(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)},
			VolumeContentSource: &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "snap-9"}}},
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.creation.Request()
			if err != nil {
				t.Fatal(err)
			}
			if difference := cmp.Diff(c.want, got, protocmp.Transform()); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestRequest_refuses(t *testing.T) {
	size := func(request, limit string) func(*corev1.PersistentVolumeClaim) {
		return func(p *corev1.PersistentVolumeClaim) {
			p.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(request)
			if limit != "" {
				p.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(limit)}
			}
		}
	}
	cases := []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		{"no size", func(p *corev1.PersistentVolumeClaim) { p.Spec.Resources.Requests = nil }, "spec.resources.requests.storage is missing"},
		{"zero", size("0", ""), "0 is not above zero"},
		{"negative", size("-1Gi", ""), "-1Gi is not above zero"},
		{"limit below request", size("2Gi", "1Gi"), "the limit 1Gi is below the request 2Gi"},
		{"no access mode", func(p *corev1.PersistentVolumeClaim) { p.Spec.AccessModes = nil }, "at least one is needed"},
		{"an unknown access mode", func(p *corev1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{"WriteSometimes"}
		}, `access mode "WriteSometimes" is none of`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Creation{Class: parsed(t, nil), Claim: pvc(c.change)}.Request()
			if err == nil || !strings.Contains(err.Error(), `PersistentVolumeClaim "ns/data": `) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestAccessMode_mapping(t *testing.T) {
	cases := []struct {
		mode           corev1.PersistentVolumeAccessMode
		without, with5 csi.VolumeCapability_AccessMode_Mode
	}{
		{corev1.ReadWriteOnce, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{corev1.ReadWriteOncePod, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{corev1.ReadOnlyMany, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{corev1.ReadWriteMany, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	}
	for _, c := range cases {
		for with, want := range map[bool]csi.VolumeCapability_AccessMode_Mode{false: c.without, true: c.with5} {
			if got, err := (Modes{SingleNodeMultiWriter: with}).AccessMode(c.mode); err != nil || got != want {
				t.Errorf("%s with SINGLE_NODE_MULTI_WRITER %v: %v, %v; want %v", c.mode, with, got, err, want)
			}
		}
	}
}

func TestNodeCapability_isOfTheFirstMode(t *testing.T) {
	use := Use{FSType: "ext4", MountGroup: "7"}
	for _, c := range []struct {
		modes []corev1.PersistentVolumeAccessMode
		want  csi.VolumeCapability_AccessMode_Mode
	}{
		{nil, csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{[]corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		got, err := use.NodeCapability(Modes{}, c.modes)
		if err != nil || got.GetAccessMode().GetMode() != c.want || got.GetMount().GetVolumeMountGroup() != "7" {
			t.Errorf("%v: %v, %v", c.modes, got, err)
		}
	}
}

func TestSourceOf(t *testing.T) {
	group := SnapshotGroup
	other := "populators.example"
	namespace := "elsewhere"
	cases := []struct {
		name   string
		source *corev1.TypedLocalObjectReference
		ref    *corev1.TypedObjectReference
		want   SourceRef
		err    string
	}{
		{name: "none"},
		{name: "claim", source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "a"}, want: SourceRef{SourceClaim, "ns", "a"}},
		{name: "snapshot by reference", ref: &corev1.TypedObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "s"}, want: SourceRef{SourceSnapshot, "ns", "s"}},
		{name: "a populator", ref: &corev1.TypedObjectReference{APIGroup: &other, Kind: "Git", Name: "s"}, err: `kind "Git" of group "populators.example" is neither`},
		{name: "a claim of the wrong group", source: &corev1.TypedLocalObjectReference{APIGroup: &other, Kind: "PersistentVolumeClaim", Name: "a"}, err: "is neither"},
		{name: "another namespace", ref: &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "a", Namespace: &namespace}, want: SourceRef{SourceClaim, "elsewhere", "a"}},
		{name: "no name", source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim"}, err: "spec.dataSource.name is missing"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := SourceOf(pvc(func(p *corev1.PersistentVolumeClaim) { p.Spec.DataSource, p.Spec.DataSourceRef = c.source, c.ref }))
			switch {
			case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want %q", err, c.err)
			case got != c.want:
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestCheckAnswer_catchesDriversThatLie(t *testing.T) {
	request := &csi.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: &csi.CapacityRange{RequiredBytes: 10, LimitBytes: 20},
		VolumeContentSource: Source{VolumeHandle: "v"}.content(),
	}
	full := Source{VolumeHandle: "v"}.content()
	cases := []struct {
		name   string
		volume *csi.Volume
		want   string
	}{
		{"right", &csi.Volume{VolumeId: "v", CapacityBytes: 10, ContentSource: full}, ""},
		{"unknown size", &csi.Volume{VolumeId: "v", ContentSource: full}, ""},
		{"nothing", nil, "without a volume_id"},
		{"too small", &csi.Volume{VolumeId: "v", CapacityBytes: 9, ContentSource: full}, "less than the 10"},
		{"too large", &csi.Volume{VolumeId: "v", CapacityBytes: 21, ContentSource: full}, "more than the limit of 20"},
		{"empty", &csi.Volume{VolumeId: "v", CapacityBytes: 10}, "not from the source"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := CheckAnswer(request, c.volume)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPersistentVolume_isWhatTheProvisionerMakes(t *testing.T) {
	creation := Creation{Class: parsed(t, map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), Claim: pvc()}
	request, err := creation.Request()
	if err != nil {
		t.Fatal(err)
	}
	got := PersistentVolume(creation, corev1.PersistentVolumeReclaimRetain, request, &csi.Volume{
		VolumeId: "vol-1", CapacityBytes: 2 << 30, VolumeContext: map[string]string{"k": "v"},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"zone": "a", "rack": "1"}}, {}},
	})
	filesystem := corev1.PersistentVolumeFilesystem
	in := func(key, value string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	want := &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-uid-1", Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "d.example"},
			Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(2<<30, resource.BinarySI)},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "d.example", VolumeHandle: "vol-1", FSType: "xfs", VolumeAttributes: map[string]string{"k": "v"},
			}},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "ns", Name: "data", UID: "uid-1"},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "fast", MountOptions: []string{"noatime"},
			VolumeMode: &filesystem,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{in("rack", "1"), in("zone", "a")}},
			}}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

func allowing(terms ...corev1.TopologySelectorTerm) *storagev1.StorageClass {
	sc := class(nil)
	sc.AllowedTopologies = terms
	return sc
}

// TestAllowedTopologies_meanTheSameToANodeAndToACentralController.
func TestAllowedTopologies_meanTheSameToANodeAndToACentralController(t *testing.T) {
	key := rapid.SampledFrom([]string{"zone", "rack"})
	expression := rapid.Custom(func(t *rapid.T) corev1.TopologySelectorLabelRequirement {
		return in(key.Draw(t, "key"), rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "values")...)
	})
	terms := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.TopologySelectorTerm {
		return selector(rapid.SliceOfN(expression, 0, 3).Draw(t, "expressions")...)
	}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		sc := allowing(terms.Draw(t, "terms")...)
		node := map[string]string{"zone": "a", "rack": "b"}
		for name, strict := range map[string]bool{"strict": true, "not strict": false} {
			_, central := Placement{Claim: "c", Node: NewTerm(node), Allowed: sc.AllowedTopologies, Strict: strict}.Requirement()
			if own := CheckTopology(sc, node); (own == nil) != (central == nil) {
				t.Fatalf("%v, %s: the node says %v, the central controller %v", sc.AllowedTopologies, name, own, central)
			}
		}
	})
}

func TestCheckTopology(t *testing.T) {
	allowed := class(nil)
	allowed.AllowedTopologies = []corev1.TopologySelectorTerm{
		{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a", "b"}}, {Key: "rack", Values: []string{"1"}}}},
	}
	for _, c := range []struct {
		class *storagev1.StorageClass
		node  map[string]string
		fits  bool
	}{
		{class(nil), nil, true},
		{allowed, map[string]string{"zone": "b", "rack": "1"}, true},
		{allowed, map[string]string{"zone": "b", "rack": "2"}, false},
		{allowed, nil, false},
		{allowing(corev1.TopologySelectorTerm{}), map[string]string{"zone": "b"}, false},
		{allowing(selector(in("zone"))), map[string]string{"zone": "b"}, false},
		{allowing(selector(in("zone", "a"), in("zone", "b"))), map[string]string{"zone": "b"}, false},
		{allowing(corev1.TopologySelectorTerm{}, selector(in("zone", "b"))), map[string]string{"zone": "b"}, true},
	} {
		if err := CheckTopology(c.class, c.node); (err == nil) != c.fits {
			t.Errorf("%v: %v", c.node, err)
		}
	}
}
