package claim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NodeLabel on a claim or a PersistentVolume names the node whose process acts on it, as
// NodeLabelValue. With node deployment, a process can watch the objects of its node
// alone by it. It is an index: the annotation of the selected node and the node affinity
// decide.
const NodeLabel = "holdfast.dev/node"

// AnyNode is the value of NodeLabel, and of ManagedByLabel, for an object of which only
// the drivers know whether they have it. Each node's process watches it.
const AnyNode = ""

// UnknownNode is the value of NodeLabel that an admission policy gives a PersistentVolume
// that is created without the label. Each node's process watches it until the coordinating
// process replaces the value. No node has this name, because of its underscore.
const UnknownNode = "unknown_node"

// DeletingNodeAnnotation is on a PersistentVolume that does not say where its volume is. It names
// the node that deletes the volume. Once it is deleted no driver knows it any more, and that node's
// process completes the deletion of the object.
const DeletingNodeAnnotation = "holdfast.dev/deleting-node"

// NodeLabelValue returns the value of NodeLabel for a node: its name, or a hash of a name
// that a label cannot hold: one that is too long, or an invalid one that a user wrote. No
// node can have the hash as its name, because names of nodes have no underscore.
func NodeLabelValue(node string) string {
	if len(validation.IsValidLabelValue(node)) == 0 {
		return node
	}
	sum := sha256.Sum256([]byte(node))
	return hashedNode + hex.EncodeToString(sum[:16])
}

const hashedNode = "sha256_"

// NodeLabelHashed reports whether a value of NodeLabel is a hash of a node's name.
func NodeLabelHashed(value string) bool { return strings.HasPrefix(value, hashedNode) }

// NodeSelector selects the objects that a label assigns to a node, to any node or to one
// that is not known yet.
func NodeSelector(label, node string) string {
	return fmt.Sprintf("%s in (%s,%s,%s)", label, AnyNode, UnknownNode, NodeLabelValue(node))
}

// The annotations of the node that is selected for a claim; the second one is older.
const (
	SelectedNodeAnnotation      = "volume.kubernetes.io/selected-node"
	AlphaSelectedNodeAnnotation = "volume.alpha.kubernetes.io/selected-node"
)

// SelectedNode returns the node where the first pod that uses a claim will run, or "".
func SelectedNode(pvc *corev1.PersistentVolumeClaim) string {
	if node := pvc.Annotations[SelectedNodeAnnotation]; node != "" {
		return node
	}
	return pvc.Annotations[AlphaSelectedNodeAnnotation]
}

// Annotations of claims that the controller-manager writes, or users of old versions.
const (
	ProvisionerAnnotation      = "volume.kubernetes.io/storage-provisioner"
	BetaProvisionerAnnotation  = "volume.beta.kubernetes.io/storage-provisioner"
	betaStorageClassAnnotation = "volume.beta.kubernetes.io/storage-class"
)

// Provisioner returns the provisioner that the controller-manager has chosen.
func Provisioner(pvc *corev1.PersistentVolumeClaim) string {
	if driver, found := pvc.Annotations[ProvisionerAnnotation]; found {
		return driver
	}
	return pvc.Annotations[BetaProvisionerAnnotation]
}

// ClassName returns the name of a claim's StorageClass.
func ClassName(pvc *corev1.PersistentVolumeClaim) string {
	if name, found := pvc.Annotations[betaStorageClassAnnotation]; found {
		return name
	}
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}
