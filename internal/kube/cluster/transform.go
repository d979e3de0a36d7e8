package cluster

import (
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lastApplied is kubectl's copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// reducer makes objects small before they are kept: it drops what no controller
// reads, and lets objects share what most of them have alike. Objects of one
// driver differ in their names and little else; kept as they are decoded, half
// of their memory is the same words, annotations and sizes again. Sharing is
// safe because the objects of a store are never changed. Each store has its own
// reducer, which one goroutine uses.
type reducer struct{ shared }

func newReducer() *reducer { return &reducer{} }

// reduce is a cache.TransformFunc. It may change the item: no other code has seen
// it yet. Nothing is ever written back whole from a cache (controllers patch),
// so that the dropped fields are not lost in the cluster.
func (r *reducer) reduce(item any) (any, error) {
	if object, ok := item.(metav1.Object); ok {
		r.meta(object)
	}
	switch object := item.(type) {
	case *corev1.Node:
		return reduceNode(object), nil
	case *corev1.PersistentVolumeClaim:
		r.claim(object)
	case *corev1.PersistentVolume:
		r.volume(object)
	case *storagev1.VolumeAttachment:
		r.word(&object.Spec.Attacher)
		r.word(&object.Spec.NodeName)
		r.words(&object.Status.AttachmentMetadata)
	case *snapshotv1.VolumeSnapshot:
		r.pointed(object.Spec.VolumeSnapshotClassName)
	case *snapshotv1.VolumeSnapshotContent:
		r.content(object)
	}
	return item, nil
}

// reduceNode keeps of a node its names, its labels and whether it accepts pods: its images
// alone are some ten KiB, and its status changes every few minutes.
func reduceNode(node *corev1.Node) *corev1.Node {
	reduced := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			Labels: node.Labels, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, ProviderID: node.Spec.ProviderID},
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			reduced.Status.Conditions = []corev1.NodeCondition{{Type: condition.Type, Status: condition.Status}}
		}
	}
	return reduced
}

// Ready reports whether the kubelet of a node reports that it is ready.
func Ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}

func (r *reducer) meta(object metav1.Object) {
	object.SetManagedFields(nil) // who wrote which field: more than all the rest
	annotations := object.GetAnnotations()
	delete(annotations, lastApplied)
	r.words(&annotations)
	object.SetAnnotations(annotations)
	labels := object.GetLabels()
	r.words(&labels)
	object.SetLabels(labels)
	finalizers := object.GetFinalizers()
	for i := range finalizers {
		r.word(&finalizers[i])
	}
	if namespace := object.GetNamespace(); namespace != "" {
		r.word(&namespace)
		object.SetNamespace(namespace)
	}
}

func (r *reducer) claim(c *corev1.PersistentVolumeClaim) {
	r.sizes(&c.Spec.Resources.Requests)
	r.sizes(&c.Spec.Resources.Limits)
	r.sizes(&c.Status.Capacity)
	r.sizes(&c.Status.AllocatedResources)
	r.modes(c.Spec.AccessModes)
	r.modes(c.Status.AccessModes)
	r.pointed(c.Spec.StorageClassName)
	r.pointed(c.Spec.VolumeAttributesClassName)
	r.pointed(c.Status.CurrentVolumeAttributesClassName)
	pointed(r, c.Spec.VolumeMode)
	word(r, &c.Status.Phase)
	for i := range c.Status.Conditions {
		condition := &c.Status.Conditions[i]
		word(r, &condition.Type)
		word(r, &condition.Status)
		r.word(&condition.Reason)
		r.word(&condition.Message)
	}
}

func (r *reducer) volume(v *corev1.PersistentVolume) {
	r.sizes(&v.Spec.Capacity)
	r.modes(v.Spec.AccessModes)
	r.word(&v.Spec.StorageClassName)
	r.pointed(v.Spec.VolumeAttributesClassName)
	word(r, &v.Spec.PersistentVolumeReclaimPolicy)
	pointed(r, v.Spec.VolumeMode)
	word(r, &v.Status.Phase)
	if claim := v.Spec.ClaimRef; claim != nil {
		r.word(&claim.APIVersion)
		r.word(&claim.Kind)
		r.word(&claim.Namespace)
	}
	if csi := v.Spec.CSI; csi != nil {
		r.word(&csi.Driver)
		r.word(&csi.FSType)
		r.words(&csi.VolumeAttributes)
	}
}

func (r *reducer) content(c *snapshotv1.VolumeSnapshotContent) {
	r.word(&c.Spec.Driver)
	word(r, &c.Spec.DeletionPolicy)
	r.pointed(c.Spec.VolumeSnapshotClassName)
	pointed(r, c.Spec.SourceVolumeMode)
	reference := &c.Spec.VolumeSnapshotRef
	r.word(&reference.APIVersion)
	r.word(&reference.Kind)
	r.word(&reference.Namespace)
}
