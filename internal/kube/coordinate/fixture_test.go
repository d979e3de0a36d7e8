package coordinate

import (
	"context"
	"fmt"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driverName = "d.example"
	hostKey    = "topology.example/host"
	zoneKey    = "topology.example/zone"
)

// world is a cluster with a coordinator.
type world struct {
	*apiserver.Cluster
	t *testing.T
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	return &world{apiserver.New(t, csidriver.New(driverName), objects...), t}
}

// run starts a coordinator in a process of its own.
func (w *world) run(change ...func(*cluster.Env, *Options)) (stop func()) {
	w.t.Helper()
	_, stop = w.controller(change...)
	return stop
}

func (w *world) controller(change ...func(*cluster.Env, *Options)) (controller *Controller, stop func()) {
	w.t.Helper()
	env, options := w.NewEnv(), Options{Immediate: true, LostAfter: 20 * time.Millisecond, Skip: time.Minute}
	for _, c := range change {
		c(env, &options)
	}
	controller = New(env, options)
	return controller, w.Run(env, controller)
}

// machine returns a node that runs the driver. Its zone is "z".
func machine(name string, change ...func(*corev1.Node)) []runtime.Object {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hostKey: name, zoneKey: "z"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(object)
	}
	return []runtime.Object{object, registered(name, driverName)}
}

func notReady(object *corev1.Node) { object.Status.Conditions[0].Status = corev1.ConditionUnknown }
func cordoned(object *corev1.Node) { object.Spec.Unschedulable = true }

func registered(node, driver string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: node, TopologyKeys: []string{hostKey, zoneKey}}}},
	}
}

func newClass(name string, change ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driverName}
	for _, c := range change {
		c(class)
	}
	return class
}

func waitForConsumer(class *storagev1.StorageClass) {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	class.VolumeBindingMode = &mode
}

func allowed(host string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: hostKey, Values: []string{host}}},
		}}
	}
}

func newClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := "fast"
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{claim.ProvisionerAnnotation: driverName},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, c := range change {
		c(pvc)
	}
	return pvc
}

func onNode(node string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Annotations[claim.SelectedNodeAnnotation] = node }
}

func ofClass(name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) { pvc.Spec.StorageClassName = &name }
}

func cloneOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: claimKind, Name: name}
	}
}

func restoreOf(name string) func(*corev1.PersistentVolumeClaim) {
	return func(pvc *corev1.PersistentVolumeClaim) {
		group := claim.SnapshotGroup
		pvc.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: snapshotKind, Name: name}
	}
}

func bound(pvc *corev1.PersistentVolumeClaim) {
	pvc.Spec.VolumeName, pvc.Status.Phase = "pv-"+pvc.Name, corev1.ClaimBound
}

// newVolume is the PersistentVolume of the bound claim of a name.
func newVolume(name string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h-" + name}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		},
	}
	for _, c := range change {
		c(pv)
	}
	return pv
}

// at gives a PersistentVolume an affinity to the nodes with a label.
func at(key string, values ...string) func(*corev1.PersistentVolume) {
	return func(pv *corev1.PersistentVolume) {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
		}}}}
	}
}

func room(class, node string, bytes int64) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: apiserver.Namespace, Name: class + "-" + node, Labels: map[string]string{claim.CapacityDriverLabel: driverName},
		},
		StorageClassName: class, Capacity: resource.NewQuantity(bytes, resource.BinarySI),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{hostKey: node, zoneKey: "z"}},
	}
}

func newSnapshot(name string, change ...func(*snapshotv1.VolumeSnapshotContent)) []runtime.Object {
	content, handle := "content-"+name, "h-"+name
	object := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: content},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: driverName, Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: "ns", Name: name},
		},
	}
	for _, c := range change {
		c(object)
	}
	return []runtime.Object{&snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Status:     &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: &content},
	}, object}
}

func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	w.t.Helper()
	pvc, err := w.Core.CoreV1().PersistentVolumeClaims("ns").Get(w.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return pvc
}

// selected waits until a node is selected for a claim, and the claim has its label.
func (w *world) selected(name string, nodes ...string) {
	w.t.Helper()
	w.Eventually(func() error {
		pvc := w.claim(name)
		for _, node := range nodes {
			if claim.SelectedNode(pvc) == node && (node == "" || pvc.Labels[claim.NodeLabel] == claim.NodeLabelValue(node)) {
				return nil
			}
		}
		return fmt.Errorf("%s is for node %q with labels %v, want %q", name, claim.SelectedNode(pvc), pvc.Labels, nodes)
	})
}

// label waits until an object has a value of a label; "-" is none.
func label[T cluster.Object](w *world, get func(context.Context, string, metav1.GetOptions) (T, error), name, key, want string) {
	w.t.Helper()
	w.Eventually(func() error {
		object, err := get(w.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		got, found := object.GetLabels()[key]
		if !found {
			got = "-"
		}
		if got != want {
			return fmt.Errorf("%s has the label %q, want %q", name, got, want)
		}
		return nil
	})
}

// event waits for an event that contains the texts.
func (w *world) event(texts ...string) {
	w.t.Helper()
	w.Happens(texts...)
}
