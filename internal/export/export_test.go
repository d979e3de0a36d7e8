package export

import (
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

const driver = "d.example"

// bound is a claim with its volume, as a host has them.
func bound(namespace, name string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	class := "fast"
	mode := corev1.PersistentVolumeFilesystem
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, UID: "c-1", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pvc-protection"}, Labels: map[string]string{"app": "x"},
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes", "team.example/note": "ours", "volume.kubernetes.io/selected-node": "m"},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: "pv-" + name, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:  corev1.VolumeResourceRequirements{Requests: size},
			DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "old"},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size},
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, UID: "v-1", ResourceVersion: "8", Finalizers: []string{"kubernetes.io/pv-protection"}, Annotations: map[string]string{"volume.kubernetes.io/provisioner-deletion-secret-name": "s"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: pvc.Spec.AccessModes, VolumeMode: &mode, StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete, MountOptions: []string{"noatime"},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: "c-1", ResourceVersion: "7"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: "vol-" + name, FSType: "ext4", VolumeAttributes: map[string]string{"a": "b"},
				NodeStageSecretRef: &corev1.SecretReference{Name: "keys", Namespace: "ns"},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	return pvc, pv
}

func onThisMachine(pv *corev1.PersistentVolume) {
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.d.example/node", Operator: corev1.NodeSelectorOpIn, Values: []string{"machine"}}},
	}}}}
}

func source(claims ...string) Source {
	s := Source{
		Nodes:   []*storagev1.CSINode{{Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: "machine"}}}}},
		Classes: []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "fast", UID: "k"}, Provisioner: driver}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}, Provisioner: driver}},
		Drivers: []*storagev1.CSIDriver{{ObjectMeta: metav1.ObjectMeta{Name: driver}}},
	}
	for _, key := range claims {
		namespace, name, _ := strings.Cut(key, "/")
		pvc, pv := bound(namespace, name)
		s.Claims, s.Volumes = append(s.Claims, pvc), append(s.Volumes, pv)
	}
	return s
}

// decode reads manifests back as a host does, which is as strict as an API server.
func decode(t *testing.T, objects []store.Object) []manifest.Object {
	t.Helper()
	text, err := Encode(objects)
	if err != nil {
		t.Fatal(err)
	}
	read, err := manifest.Decode([]manifest.File{{Name: "export.yaml", Data: text}})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return read.All
}

func names(objects []store.Object) (all []string) {
	for _, o := range objects {
		all = append(all, o.GetObjectKind().GroupVersionKind().Kind+" "+store.KeyOf(o))
	}
	return all
}

func TestBuild_writesManifestsThatAClusterAdopts(t *testing.T) {
	result, err := Build(source("shop/data"), Options{Classes: true})
	if err != nil || len(result.Left) > 0 {
		t.Fatalf("%+v, %v", result, err)
	}
	want := []string{"Namespace shop", "CSIDriver d.example", "StorageClass fast", "PersistentVolume pv-data", "PersistentVolumeClaim shop/data"}
	if diff := cmp.Diff(want, names(result.Objects)); diff != "" {
		t.Error(diff)
	}
	decode(t, result.Objects)
	pv, pvc := result.Objects[3].(*corev1.PersistentVolume), result.Objects[4].(*corev1.PersistentVolumeClaim)
	if ref := pv.Spec.ClaimRef; ref.UID != "" || ref.ResourceVersion != "" || ref.Namespace != "shop" || ref.Name != "data" {
		t.Errorf("the volume's claimRef is %+v", ref)
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.UID != "" || len(pv.Finalizers) > 0 || pv.Spec.CSI.VolumeHandle != "vol-data" {
		t.Errorf("the volume is %+v", pv)
	}
	if diff := cmp.Diff(map[string]string{"pv.kubernetes.io/provisioned-by": driver, "volume.kubernetes.io/provisioner-deletion-secret-name": "s"}, pv.Annotations); diff != "" {
		t.Error(diff)
	}
	if pvc.Spec.VolumeName != "pv-data" || pvc.Spec.DataSource != nil || pvc.UID != "" || len(pvc.Annotations) != 1 || pvc.Annotations["team.example/note"] != "ours" {
		t.Errorf("the claim is %+v", pvc)
	}
	if len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0], "secret keys in namespace ns") {
		t.Errorf("warnings: %q", result.Warnings)
	}
}

// A host that took an export gives the same one.
func TestBuild_roundTrip(t *testing.T) {
	first, err := Build(source("default/a", "shop/b"), Options{Classes: true})
	if err != nil {
		t.Fatal(err)
	}
	second := Source{Nodes: source().Nodes}
	for _, o := range decode(t, first.Objects) {
		switch object := o.Object.(type) {
		case *corev1.PersistentVolume:
			object.UID, object.Status.Phase = "new", corev1.VolumeBound
			second.Volumes = append(second.Volumes, object)
		case *corev1.PersistentVolumeClaim:
			object.UID, object.Status.Phase = "new", corev1.ClaimBound
			second.Claims = append(second.Claims, object)
		case *storagev1.StorageClass:
			second.Classes = append(second.Classes, object)
		case *storagev1.CSIDriver:
			second.Drivers = append(second.Drivers, object)
		}
	}
	again, err := Build(second, Options{Classes: true})
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]string
	for i, objects := range [][]manifest.Object{decode(t, first.Objects), decode(t, again.Objects)} {
		var plain []store.Object
		for _, o := range objects {
			plain = append(plain, o.Object)
		}
		text, err := Encode(plain)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if diff := cmp.Diff(texts[0], texts[1]); diff != "" {
		t.Error(diff)
	}
}

func TestBuild_volumesOfThisMachine(t *testing.T) {
	s := source("default/data")
	onThisMachine(s.Volumes[0])
	result, err := Build(s, Options{})
	if err != nil || len(result.Objects) > 0 || len(result.Left) != 1 || !strings.Contains(result.Left[0], "--node-name") {
		t.Errorf("without a node's name: %+v, %v", result, err)
	}
	result, err = Build(s, Options{NodeName: "worker-3"})
	if err != nil || len(result.Objects) != 2 {
		t.Fatalf("with a node's name: %+v, %v", result, err)
	}
	moved := result.Objects[0].(*corev1.PersistentVolume).Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
	if diff := cmp.Diff([]string{"worker-3"}, moved.Values); diff != "" {
		t.Error(diff)
	}
	if s.Volumes[0].Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "machine" {
		t.Error("the host's own object was changed")
	}
}

func TestBuild_omitsVolumesThatCannotMove(t *testing.T) {
	yes := true
	cases := map[string]func(*Source){
		"being deleted": func(s *Source) { s.Claims[0].DeletionTimestamp = &metav1.Time{} },
		"belongs to Pod x": func(s *Source) {
			s.Claims[0].OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "x", Controller: &yes}}
		},
		"(Pending)":         func(s *Source) { s.Claims[0].Status.Phase, s.Claims[0].Spec.VolumeName = corev1.ClaimPending, "" },
		"(Bound)":           func(s *Source) { s.Volumes = nil },
		"is being changed;": func(s *Source) { s.Claims[0].Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{} },
	}
	for want, change := range cases {
		s := source("default/data")
		change(&s)
		result, err := Build(s, Options{})
		if err != nil || len(result.Objects) > 0 || len(result.Left) != 1 || !strings.Contains(result.Left[0], want) {
			t.Errorf("%s: %+v, %v", want, result, err)
		}
	}
	if _, err := Build(source("default/data"), Options{Claims: []string{"default/none"}}); err == nil {
		t.Error("a claim that does not exist must be an error")
	}
}

func TestBuild_warnsOfVolumesInUse(t *testing.T) {
	s := source("default/data", "default/other")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "default"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.Pods = []*corev1.Pod{pod}
	result, err := Build(s, Options{Claims: []string{"default/data"}})
	if err != nil || len(result.Objects) != 2 || !strings.Contains(strings.Join(result.Warnings, ";"), "in use by pod app") {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestBuild_snapshots(t *testing.T) {
	s := source("default/data")
	of, content, class, handle := "data", "content-1", "snap", "snap-1"
	taken := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: "default"}}
	taken.Spec.Source.PersistentVolumeClaimName, taken.Spec.VolumeSnapshotClassName = &of, &class
	taken.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &content}
	pending := taken.DeepCopy()
	pending.Name, pending.Status = "two", nil
	s.Snapshots = []*snapshotv1.VolumeSnapshot{taken, pending}
	s.SnapshotClasses = []*snapshotv1.VolumeSnapshotClass{{ObjectMeta: metav1.ObjectMeta{Name: class}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}}
	s.Contents = []*snapshotv1.VolumeSnapshotContent{{
		ObjectMeta: metav1.ObjectMeta{Name: content}, Spec: snapshotv1.VolumeSnapshotContentSpec{Driver: driver, VolumeSnapshotClassName: &class},
		Status: &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle},
	}}
	result, err := Build(s, Options{Snapshots: true, Classes: true})
	if err != nil || !strings.Contains(strings.Join(result.Warnings, ";"), "snapshot default/two is not exported") {
		t.Fatalf("%+v, %v", result, err)
	}
	want := []string{
		"CSIDriver d.example", "StorageClass fast", "VolumeSnapshotClass snap", "PersistentVolume pv-data", "VolumeSnapshotContent content-1",
		"PersistentVolumeClaim default/data", "VolumeSnapshot default/one",
	}
	if diff := cmp.Diff(want, names(result.Objects)); diff != "" {
		t.Error(diff)
	}
	decode(t, result.Objects)
}
