package cluster

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fresh returns its argument in memory of its own, as decoding does.
func fresh(text string) string { return string([]byte(text)) }

func freshMap(pairs ...string) map[string]string {
	made := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		made[fresh(pairs[i])] = fresh(pairs[i+1])
	}
	return made
}

func freshMeta(name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: fresh("default"), UID: types.UID("uid-" + name), ResourceVersion: "17",
		Annotations: annotations, Labels: freshMap("app", "x"), Finalizers: []string{fresh("kubernetes.io/pvc-protection")},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "another"}},
	}
}

func freshClaim(i int) *corev1.PersistentVolumeClaim {
	class, attributes, mode := fresh("fast"), fresh("gold"), corev1.PersistentVolumeMode(fresh("Filesystem"))
	size := func() corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	}
	modes := func() []corev1.PersistentVolumeAccessMode {
		return []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(fresh("ReadWriteOnce"))}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: freshMeta(fmt.Sprintf("claim-%d", i), freshMap("pv.kubernetes.io/bind-completed", "yes", "volume.kubernetes.io/storage-provisioner", "driver.example.com")),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes(), Resources: corev1.VolumeResourceRequirements{Requests: size()}, VolumeName: fmt.Sprintf("pvc-%d", i),
			StorageClassName: &class, VolumeMode: &mode, VolumeAttributesClassName: &attributes,
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.PersistentVolumeClaimPhase(fresh("Bound")), AccessModes: modes(), Capacity: size(),
			Conditions: []corev1.PersistentVolumeClaimCondition{{Type: "Unused", Status: "True", Reason: fresh("NoPodsUsingPVC"), Message: fresh("No pods")}},
		},
	}
}

func freshVolume(i int) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeMode(fresh("Filesystem"))
	return &corev1.PersistentVolume{
		ObjectMeta: freshMeta(fmt.Sprintf("pvc-%d", i), freshMap("pv.kubernetes.io/provisioned-by", "driver.example.com")),
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(fresh("ReadWriteOnce"))},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: fresh("driver.example.com"), VolumeHandle: fmt.Sprintf("vol-%d", i), FSType: fresh("ext4"),
				VolumeAttributes: freshMap("storage.kubernetes.io/csiProvisionerIdentity", "1795278286665-c4dnz-driver.example.com"),
			}},
			ClaimRef:                      &corev1.ObjectReference{Kind: fresh("PersistentVolumeClaim"), APIVersion: fresh("v1"), Namespace: fresh("default"), Name: fmt.Sprintf("claim-%d", i)},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(fresh("Delete")), StorageClassName: fresh("fast"), VolumeMode: &mode,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.PersistentVolumePhase(fresh("Bound"))},
	}
}

func freshAttachment(i int) *storagev1.VolumeAttachment {
	name := fmt.Sprintf("pvc-%d", i)
	return &storagev1.VolumeAttachment{
		ObjectMeta: freshMeta(fmt.Sprintf("csi-%d", i), freshMap("csi.alpha.kubernetes.io/node-id", "node-1")),
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: fresh("driver.example.com"), NodeName: fresh("node-1"), Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: freshMap("device", "1")},
	}
}

func freshContent(i int) *snapshotv1.VolumeSnapshotContent {
	class, mode := fresh("snapshots"), corev1.PersistentVolumeMode(fresh("Filesystem"))
	handle := fmt.Sprintf("vol-%d", i)
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: freshMeta(fmt.Sprintf("snapcontent-%d", i), freshMap("snapshot.storage.kubernetes.io/deletion-secret-name", "s")),
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: fresh("driver.example.com"), DeletionPolicy: snapshotv1.DeletionPolicy(fresh("Delete")), VolumeSnapshotClassName: &class, SourceVolumeMode: &mode,
			VolumeSnapshotRef: corev1.ObjectReference{Kind: fresh("VolumeSnapshot"), APIVersion: fresh("snapshot.storage.k8s.io/v1"), Namespace: fresh("default"), Name: "s"},
			Source:            snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
		},
	}
}

func reduced[T any](t testing.TB, r *reducer, object T) T {
	t.Helper()
	item, err := r.reduce(object)
	if err != nil {
		t.Fatal(err)
	}
	return item.(T)
}

func TestReduce_keepsTheContent(t *testing.T) {
	r := newReducer()
	for i := range 3 {
		for _, pair := range []struct{ want, object Object }{
			{freshClaim(i), freshClaim(i)}, {freshVolume(i), freshVolume(i)},
			{freshAttachment(i), freshAttachment(i)}, {freshContent(i), freshContent(i)},
		} {
			pair.want.SetManagedFields(nil)
			if diff := cmp.Diff(pair.want, reduced(t, r, pair.object)); diff != "" {
				t.Errorf("%T became (-want +got):\n%s", pair.object, diff)
			}
		}
	}
}

func TestReduce_dropsUnusedFields(t *testing.T) {
	object := freshClaim(0)
	object.Annotations[lastApplied] = "{}"
	if got := reduced(t, newReducer(), object); got.ManagedFields != nil || got.Annotations[lastApplied] != "" {
		t.Errorf("kept %v and %v", got.ManagedFields, got.Annotations)
	}
	node := &corev1.Node{ObjectMeta: freshMeta("n", nil), Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	got := reduced(t, newReducer(), node)
	if got.Status.Images != nil || got.Labels["app"] != "x" || got.Name != "n" {
		t.Errorf("of the node is left %+v", got)
	}
}

// Shared values displace each other if their hashes collide, so that a few of many
// reducers share less.
func TestReduce_objectsShareEqualValues(t *testing.T) {
	const tries = 50
	twice := map[string]int{}
	same := func(what string, a, b any) {
		if reflect.ValueOf(a).Pointer() != reflect.ValueOf(b).Pointer() {
			twice[what]++
		}
	}
	for range tries {
		r := newReducer()
		one, two := reduced(t, r, freshVolume(1)), reduced(t, r, freshVolume(2))
		same("annotations", one.Annotations, two.Annotations)
		same("attributes", one.Spec.CSI.VolumeAttributes, two.Spec.CSI.VolumeAttributes)
		same("capacities", one.Spec.Capacity, two.Spec.Capacity)
		same("classes' names", unsafe.StringData(one.Spec.StorageClassName), unsafe.StringData(two.Spec.StorageClassName))
		other := freshVolume(3)
		other.Annotations["more"] = "x"
		if got := reduced(t, r, other); got.Annotations["more"] != "x" || one.Annotations["more"] != "" {
			t.Error("maps that differ were shared")
		}
	}
	for what, times := range twice {
		if times > tries/5 {
			t.Errorf("%s are two in %d of %d cases", what, times, tries)
		}
	}
}

func TestReduce_doesNotShareLongerLists(t *testing.T) {
	r := newReducer()
	first := reduced(t, r, freshClaim(0))
	object := freshClaim(1)
	object.Spec.Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	object.Status.Capacity[corev1.ResourceStorage] = resource.MustParse("2Gi")
	got := reduced(t, r, object)
	if len(got.Spec.Resources.Requests) != 2 || len(first.Spec.Resources.Requests) != 1 || got.Status.Capacity.Storage().String() != "2Gi" {
		t.Errorf("sizes became %v and %v", got.Spec.Resources, got.Status.Capacity)
	}
}

// BenchmarkReduce_memory measures the heap of an object, with and without Reduce.
func BenchmarkReduce_memory(b *testing.B) {
	kinds := map[string]func(int) Object{
		"claim": func(i int) Object { return freshClaim(i) }, "volume": func(i int) Object { return freshVolume(i) },
		"attachment": func(i int) Object { return freshAttachment(i) }, "content": func(i int) Object { return freshContent(i) },
	}
	for name, make := range kinds {
		for _, how := range []string{"whole", "reduced"} {
			b.Run(name+"/"+how, func(b *testing.B) {
				r := newReducer()
				before := heap()
				var kept []any
				for i := range b.N {
					object := make(i)
					if object.SetManagedFields(nil); how == "reduced" {
						kept = append(kept, reduced(b, r, object))
					} else {
						kept = append(kept, object)
					}
				}
				b.ReportMetric(float64(heap()-before)/float64(b.N), "B/object")
				runtime.KeepAlive(kept)
			})
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
