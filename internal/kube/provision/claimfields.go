package provision

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/migration"
)

// Annotations of claims.
const (
	provisionerAnnotation     = claim.ProvisionerAnnotation
	betaProvisionerAnnotation = claim.BetaProvisionerAnnotation
	selectedNodeAnnotation    = claim.SelectedNodeAnnotation
	alphaSelectedNode         = claim.AlphaSelectedNodeAnnotation
)

func driverOf(pvc *corev1.PersistentVolumeClaim) string { return claim.Provisioner(pvc) }

func selectedNode(pvc *corev1.PersistentVolumeClaim) string { return claim.SelectedNode(pvc) }

func className(pvc *corev1.PersistentVolumeClaim) string { return claim.ClassName(pvc) }

func waitsForConsumer(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// forDriver reports whether a claim is for this driver. One for the in-tree plugin that
// the driver replaced is, once the controller-manager has marked it so: before, or if the
// migration is off, the plugin serves it (as in external-provisioner, ShouldProvision).
func (c *Controller) forDriver(pvc *corev1.PersistentVolumeClaim) bool {
	return driverOf(pvc) == c.env.Driver || pvc.Annotations[migration.MigratedToAnnotation] == c.env.Driver
}

// provisions reports whether the provisioner's name of a class is the driver's, or that of
// the in-tree plugin that the driver replaced.
func (c *Controller) provisions(name string) bool {
	return name == c.env.Driver || name != "" && name == c.migration.Plugin()
}

// pending reports whether a claim for this driver waits for a volume.
func (c *Controller) pending(pvc *corev1.PersistentVolumeClaim) bool {
	return pvc.Spec.VolumeName == "" && c.forDriver(pvc)
}

// serves reports whether this process serves a claim: in a node's scope, a claim for this
// node, or one for which this node may select itself.
func (c *Controller) serves(pvc *corev1.PersistentVolumeClaim) bool {
	node := selectedNode(pvc)
	return c.env.Scope.Central() || node == c.env.Scope.Node || node == "" && (c.csiNodes != nil || c.maySelectBySource(pvc))
}

// volumeName is the name of a claim's volume and PersistentVolume.
func (c *Controller) volumeName(pvc *corev1.PersistentVolumeClaim) string {
	uid := string(pvc.UID)
	if length := c.options.VolumeNameUUIDLength; length > 0 {
		uid = strings.ReplaceAll(uid, "-", "")
		uid = uid[:min(length, len(uid))]
	}
	return c.options.VolumeNamePrefix + "-" + uid
}

// sourceKind is the source of a claim in metrics.
func sourceKind(pvc *corev1.PersistentVolumeClaim) string {
	if pvc == nil {
		return ""
	}
	switch source, err := claim.SourceOf(pvc); {
	case err != nil || source.Kind == claim.SourceNone:
		return ""
	case source.Kind == claim.SourceClaim:
		return "PersistentVolumeClaim"
	}
	return "VolumeSnapshot"
}
