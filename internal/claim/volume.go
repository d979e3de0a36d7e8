package claim

import (
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

// ProvisionedByAnnotation on a PersistentVolume names the driver that made it.
const ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"

// ProvisionerFinalizer keeps a PersistentVolume until its volume is deleted.
const ProvisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"

// CheckAnswer tells whether the driver made what it was asked for. After an
// error the volume is to be deleted again.
func CheckAnswer(request *csi.CreateVolumeRequest, volume *csi.Volume) error {
	size, id := volume.GetCapacityBytes(), volume.GetVolumeId()
	limit := request.GetCapacityRange().GetLimitBytes()
	switch {
	case id == "":
		return fmt.Errorf("the driver answered CreateVolume %q without a volume_id", request.GetName())
	case size != 0 && size < request.GetCapacityRange().GetRequiredBytes():
		return fmt.Errorf("the driver made volume %q with %d bytes, less than the %d asked for",
			id, size, request.GetCapacityRange().GetRequiredBytes())
	case limit != 0 && size > limit:
		return fmt.Errorf("the driver made volume %q with %d bytes, more than the limit of %d", id, size, limit)
	case request.GetVolumeContentSource() != nil && volume.GetContentSource() == nil:
		return fmt.Errorf("the driver made volume %q empty, not from the source asked for", id)
	}
	return nil
}

// PersistentVolume is the object for a volume that CreateVolume answered with.
func PersistentVolume(c Creation, policy corev1.PersistentVolumeReclaimPolicy, request *csi.CreateVolumeRequest, volume *csi.Volume) *corev1.PersistentVolume {
	size := volume.GetCapacityBytes()
	if size == 0 { // unknown to the driver
		size = request.GetCapacityRange().GetRequiredBytes()
	}
	mode := corev1.PersistentVolumeFilesystem
	source := &corev1.CSIPersistentVolumeSource{
		Driver: c.Class.Driver, VolumeHandle: volume.GetVolumeId(), FSType: c.Class.FSType,
		VolumeAttributes: maps.Clone(volume.GetVolumeContext()),
	}
	if IsBlock(c.Claim.Spec.VolumeMode) {
		mode, source.FSType = corev1.PersistentVolumeBlock, ""
	}
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        request.GetName(),
			Annotations: map[string]string{ProvisionedByAnnotation: c.Class.Driver},
			Finalizers:  []string{ProvisionerFinalizer},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: source},
			AccessModes:                   slices.Clone(c.Claim.Spec.AccessModes),
			ClaimRef:                      claimRef(c.Claim),
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              c.Class.Name,
			MountOptions:                  slices.Clone(c.Class.MountOptions),
			VolumeMode:                    &mode,
			NodeAffinity:                  affinity(volume.GetAccessibleTopology()),
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

func claimRef(pvc *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID,
	}
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

// ReclaimPolicy is what a class says happens to a volume whose claim is gone.
func ReclaimPolicy(sc *storagev1.StorageClass) corev1.PersistentVolumeReclaimPolicy {
	if sc.ReclaimPolicy == nil {
		return corev1.PersistentVolumeReclaimDelete
	}
	return *sc.ReclaimPolicy
}

// CheckTopology tells whether a class with allowedTopologies may be used on a
// node with these segments: some term must hold in full.
func CheckTopology(sc *storagev1.StorageClass, node map[string]string) error {
	if len(sc.AllowedTopologies) == 0 {
		return nil
	}
	for _, term := range sc.AllowedTopologies {
		if holds(term, node) {
			return nil
		}
	}
	var segments []string
	for _, key := range slices.Sorted(maps.Keys(node)) {
		segments = append(segments, key+"="+node[key])
	}
	return fmt.Errorf("StorageClass %q: allowedTopologies: none of them fits this machine (%s)", sc.Name, strings.Join(segments, ", "))
}

func holds(term corev1.TopologySelectorTerm, node map[string]string) bool {
	for _, expression := range term.MatchLabelExpressions {
		value, has := node[expression.Key]
		if !has || !slices.Contains(expression.Values, value) {
			return false
		}
	}
	return true
}
