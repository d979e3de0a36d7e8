package claim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProvisionedByAnnotation on a PersistentVolume names the provisioner of its class: the
// driver that made it, or the in-tree plugin that the driver replaced.
const ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"

// MigratedToAnnotation names the driver that serves a volume or a claim of an in-tree
// plugin. The controller-manager sets it, and removes it if the migration is reverted.
const MigratedToAnnotation = "pv.kubernetes.io/migrated-to"

// ProvisionerFinalizer keeps a PersistentVolume until its volume is deleted.
const ProvisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// VolumeOptions are the fields of a PersistentVolume that come neither from the claim nor
// from the driver's answer.
type VolumeOptions struct {
	Policy     corev1.PersistentVolumeReclaimPolicy
	Finalizers []string
	// Secrets are the references that later calls read (Class.ResolveSecrets);
	// nil writes none of the secrets' annotations.
	Secrets map[SecretUse]*corev1.SecretReference
	// Identity, if set, is kept as the volume attribute IdentityAttribute.
	Identity string
	// ReadOnly marks a volume whose only access mode is ReadOnlyMany, for drivers
	// with PUBLISH_READONLY.
	ReadOnly bool
}

// IdentityAttribute names the run of a provisioner that created a volume.
const IdentityAttribute = "storage.kubernetes.io/csiProvisionerIdentity"

// PersistentVolume is the object for a volume that CreateVolume answered with.
func PersistentVolume(
	c Creation, policy corev1.PersistentVolumeReclaimPolicy, request *csi.CreateVolumeRequest, volume *csi.Volume,
) *corev1.PersistentVolume {
	return FillVolume(c.Template(VolumeOptions{Policy: policy, Finalizers: []string{ProvisionerFinalizer}}), request, volume)
}

// Template is the PersistentVolume as far as it is known before the driver is
// asked, so that it may be recorded with the request: without handle, size,
// topology and context.
func (c Creation) Template(o VolumeOptions) *corev1.PersistentVolume {
	mode := corev1.PersistentVolumeFilesystem
	source := &corev1.CSIPersistentVolumeSource{
		Driver: c.Class.Driver, FSType: c.Class.FSType,
		ControllerPublishSecretRef: o.Secrets[SecretControllerPublish],
		NodeStageSecretRef:         o.Secrets[SecretNodeStage],
		NodePublishSecretRef:       o.Secrets[SecretNodePublish],
		ControllerExpandSecretRef:  o.Secrets[SecretControllerExpand],
		NodeExpandSecretRef:        o.Secrets[SecretNodeExpand],
	}
	if o.Identity != "" {
		source.VolumeAttributes = map[string]string{IdentityAttribute: o.Identity}
	}
	modes := c.Claim.Spec.AccessModes
	source.ReadOnly = o.ReadOnly && len(modes) == 1 && modes[0] == corev1.ReadOnlyMany
	if IsBlock(c.Claim.Spec.VolumeMode) {
		mode, source.FSType = corev1.PersistentVolumeBlock, ""
	}
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name(), Annotations: c.volumeAnnotations(o.Secrets), Finalizers: slices.Clone(o.Finalizers),
		},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: source},
			AccessModes:                   slices.Clone(modes),
			ClaimRef:                      claimRef(c.Claim),
			PersistentVolumeReclaimPolicy: o.Policy,
			StorageClassName:              c.Class.Name,
			MountOptions:                  slices.Clone(c.Class.MountOptions),
			VolumeMode:                    &mode,
			VolumeAttributesClassName:     attributesClass(c.Claim),
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// volumeAnnotations always has the deletion secret's pair, empty if there is
// none: an object without it would have its class asked at deletion.
func (c Creation) volumeAnnotations(secrets map[SecretUse]*corev1.SecretReference) map[string]string {
	annotations := map[string]string{ProvisionedByAnnotation: cmp.Or(c.Class.InTree, c.Class.Driver)}
	if secrets == nil {
		return annotations
	}
	annotations[DeletionSecretNameAnnotation], annotations[DeletionSecretNamespaceAnnotation] = "", ""
	if secret := secrets[SecretProvision]; secret != nil {
		annotations[DeletionSecretNameAnnotation], annotations[DeletionSecretNamespaceAnnotation] = secret.Name, secret.Namespace
	}
	if secret := secrets[SecretControllerModify]; secret != nil {
		annotations[ModifySecretNameAnnotation], annotations[ModifySecretNamespaceAnnotation] = secret.Name, secret.Namespace
	}
	return annotations
}

// FillVolume returns a copy of a Template, completed with the driver's answer to the
// request.
func FillVolume(
	template *corev1.PersistentVolume, request *csi.CreateVolumeRequest, volume *csi.Volume,
) *corev1.PersistentVolume {
	size := volume.GetCapacityBytes()
	if size == 0 { // unknown to the driver
		size = request.GetCapacityRange().GetRequiredBytes()
	}
	filled := template.DeepCopy()
	filled.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}
	filled.Spec.NodeAffinity = affinity(volume.GetAccessibleTopology())
	source := filled.Spec.CSI
	source.VolumeHandle = volume.GetVolumeId()
	attributes := maps.Clone(volume.GetVolumeContext())
	if own := source.VolumeAttributes; len(own) > 0 {
		if attributes == nil {
			attributes = map[string]string{}
		}
		maps.Copy(attributes, own)
	}
	source.VolumeAttributes = attributes
	return filled
}

func claimRef(pvc *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
		ResourceVersion: pvc.ResourceVersion,
	}
}

// attributesClass is the claim's VolumeAttributesClass; "" means none.
func attributesClass(pvc *corev1.PersistentVolumeClaim) *string {
	if name := pvc.Spec.VolumeAttributesClassName; name != nil && *name != "" {
		copied := *name
		return &copied
	}
	return nil
}

// affinity is one term per topology; segment-less ones say nothing, and an
// empty list of terms would match no node at all.
func affinity(topologies []*csi.Topology) *corev1.VolumeNodeAffinity {
	var terms []corev1.NodeSelectorTerm
	for _, topology := range topologies {
		var term corev1.NodeSelectorTerm
		for _, key := range slices.Sorted(maps.Keys(topology.GetSegments())) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{topology.GetSegments()[key]},
			})
		}
		if len(term.MatchExpressions) > 0 {
			terms = append(terms, term)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

// ReclaimPolicy returns the reclaim policy of a class, or its default.
func ReclaimPolicy(sc *storagev1.StorageClass) corev1.PersistentVolumeReclaimPolicy {
	if sc.ReclaimPolicy == nil {
		return corev1.PersistentVolumeReclaimDelete
	}
	return *sc.ReclaimPolicy
}

// CheckTopology reports whether a class with allowedTopologies may be used on a
// node, or on the machine of a host. What a term allows is FlattenAllowed's to say.
func CheckTopology(sc *storagev1.StorageClass, node map[string]string) error {
	if len(sc.AllowedTopologies) == 0 {
		return nil
	}
	allowed, err := FlattenAllowed(sc.AllowedTopologies)
	if err != nil {
		return fmt.Errorf("StorageClass %q: %w", sc.Name, err)
	}
	here := NewTerm(node)
	if slices.ContainsFunc(allowed, func(t Term) bool { return t.Within(here) }) {
		return nil
	}
	return fmt.Errorf("StorageClass %q: allowedTopologies: none of them fits this machine (%s)",
		sc.Name, strings.ReplaceAll(here.String(), ",", ", "))
}
