// Package export writes the manifests with which a cluster, or another host,
// adopts the volumes of a host: PersistentVolumes that are bound beforehand to
// claims of the same names, and that are not deleted with their claims.
package export

import (
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Source has the objects of a host.
type Source struct {
	Namespaces        []*corev1.Namespace
	Drivers           []*storagev1.CSIDriver
	Nodes             []*storagev1.CSINode
	Classes           []*storagev1.StorageClass
	AttributesClasses []*storagev1.VolumeAttributesClass
	SnapshotClasses   []*snapshotv1.VolumeSnapshotClass
	Volumes           []*corev1.PersistentVolume
	Claims            []*corev1.PersistentVolumeClaim
	Pods              []*corev1.Pod
	Snapshots         []*snapshotv1.VolumeSnapshot
	Contents          []*snapshotv1.VolumeSnapshotContent
}

// Options of Build.
type Options struct {
	// Claims are the keys of the claims to export; empty: all.
	Claims []string
	// NodeName is the name of the cluster's node on which the volumes of this machine
	// will be: without it, volumes that are bound to this machine are not exported.
	NodeName string
	// Classes adds the CSIDriver objects and classes that the volumes name.
	Classes bool
	// Snapshots adds the snapshots of the claims.
	Snapshots bool
}

// Result has the manifests, and warnings.
type Result struct {
	// Objects are in the order in which they are to be applied.
	Objects []store.Object
	// Left are claims that are not exported, each with the reason.
	Left []string
	// Warnings name the steps that are left to the user.
	Warnings []string
}

// Build makes the manifests. An error is a claim that does not exist.
func Build(source Source, options Options) (Result, error) {
	b := &builder{source: source, options: options}
	for _, key := range options.Claims {
		if !slices.ContainsFunc(source.Claims, func(c *corev1.PersistentVolumeClaim) bool { return store.KeyOf(c) == key }) {
			return Result{}, fmt.Errorf("claim %s does not exist", key)
		}
	}
	for _, pvc := range source.Claims {
		if len(options.Claims) == 0 || slices.Contains(options.Claims, store.KeyOf(pvc)) {
			b.claim(pvc)
		}
	}
	if options.Snapshots {
		b.snapshots()
	}
	b.namespaces()
	if options.Classes {
		b.classes()
	}
	b.secrets()
	var result Result
	for _, kind := range store.Kinds() { // that others refer to comes first
		for _, object := range b.objects {
			if object.GetObjectKind().GroupVersionKind() == kind.GroupVersionKind {
				result.Objects = append(result.Objects, object)
			}
		}
	}
	result.Left, result.Warnings = b.left, b.warnings
	return result, nil
}

type builder struct {
	source         Source
	options        Options
	objects        []store.Object
	volumes        []*corev1.PersistentVolume
	claims         []*corev1.PersistentVolumeClaim
	left, warnings []string
}

func (b *builder) leave(pvc *corev1.PersistentVolumeClaim, format string, arguments ...any) {
	b.left = append(b.left, fmt.Sprintf("claim %s is not exported: ", store.KeyOf(pvc))+fmt.Sprintf(format, arguments...))
}

func (b *builder) warn(format string, arguments ...any) {
	if text := fmt.Sprintf(format, arguments...); !slices.Contains(b.warnings, text) {
		b.warnings = append(b.warnings, text)
	}
}

func (b *builder) claim(pvc *corev1.PersistentVolumeClaim) {
	at := slices.IndexFunc(b.source.Volumes, func(pv *corev1.PersistentVolume) bool {
		ref := pv.Spec.ClaimRef
		return pv.Name == pvc.Spec.VolumeName && ref != nil && ref.Namespace == pvc.Namespace && ref.Name == pvc.Name
	})
	owner := metav1.GetControllerOf(pvc)
	switch {
	case pvc.DeletionTimestamp != nil:
		b.leave(pvc, "it is being deleted")
		return
	case owner != nil:
		b.leave(pvc, "it belongs to %s %s and goes with it", owner.Kind, owner.Name)
		return
	case pvc.Status.Phase != corev1.ClaimBound || at < 0 || b.source.Volumes[at].Spec.CSI == nil:
		b.leave(pvc, "it has no volume of a CSI driver (%s)", pvc.Status.Phase)
		return
	case pvc.Status.ModifyVolumeStatus != nil || len(pvc.Status.AllocatedResourceStatuses) > 0:
		b.leave(pvc, "its volume is being changed; wait for the end of it ('holdfast why pvc/%s')", pvc.Name)
		return
	}
	pv := b.source.Volumes[at]
	affinity, err := b.affinity(pv)
	if err != nil {
		b.leave(pvc, "%v", err)
		return
	}
	for _, pod := range b.source.Pods {
		if uses(pod, pvc.Name) && pod.Namespace == pvc.Namespace {
			b.warn("claim %s is in use by pod %s: end it before a cluster mounts the volume", store.KeyOf(pvc), pod.Name)
		}
	}
	volume, adopted := volumeOf(pv, affinity), claimOf(pvc, pv)
	b.volumes, b.claims = append(b.volumes, volume), append(b.claims, adopted)
	b.objects = append(b.objects, volume, adopted)
}

func uses(pod *corev1.Pod, claimName string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claimName
	})
}

// affinity is the volume's, with the name of the cluster's node for this
// machine's. It is an error if the volume is bound to this machine and the options do
// not name its node.
func (b *builder) affinity(pv *corev1.PersistentVolume) (*corev1.VolumeNodeAffinity, error) {
	id := b.nodeID(pv.Spec.CSI.Driver)
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil || id == "" {
		return pv.Spec.NodeAffinity, nil
	}
	moved, found := pv.Spec.NodeAffinity.DeepCopy(), false
	for i := range moved.Required.NodeSelectorTerms {
		terms := &moved.Required.NodeSelectorTerms[i]
		for _, list := range [][]corev1.NodeSelectorRequirement{terms.MatchExpressions, terms.MatchFields} {
			for j := range list {
				if at := slices.Index(list[j].Values, id); at >= 0 {
					list[j].Values[at], found = b.options.NodeName, true
				}
			}
		}
	}
	if found && b.options.NodeName == "" {
		return nil, fmt.Errorf("its volume is on this machine (%s), and stays there: if the machine becomes a node of the cluster, give its name there with --node-name", id)
	}
	return moved, nil
}

// nodeID is a driver's node ID of this machine.
func (b *builder) nodeID(driver string) string {
	for _, node := range b.source.Nodes {
		for _, d := range node.Spec.Drivers {
			if d.Name == driver {
				return d.NodeID
			}
		}
	}
	return ""
}

func volumeOf(pv *corev1.PersistentVolume, affinity *corev1.VolumeNodeAffinity) *corev1.PersistentVolume {
	spec := pv.Spec.DeepCopy()
	spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	spec.NodeAffinity = affinity
	// Without a uid: it is bound to the claim of that name, whenever it is made.
	spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
		Namespace: pv.Spec.ClaimRef.Namespace, Name: pv.Spec.ClaimRef.Name}
	annotations := map[string]string{claim.ProvisionedByAnnotation: pv.Spec.CSI.Driver}
	for _, name := range []string{
		claim.DeletionSecretNameAnnotation, claim.DeletionSecretNamespaceAnnotation, claim.ModifySecretNameAnnotation,
		claim.ModifySecretNamespaceAnnotation,
	} {
		if value, has := pv.Annotations[name]; has {
			annotations[name] = value
		}
	}
	return &corev1.PersistentVolume{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"},
		ObjectMeta: metav1.ObjectMeta{Name: pv.Name, Labels: pv.Labels, Annotations: annotations}, Spec: *spec,
	}
}

func claimOf(pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) *corev1.PersistentVolumeClaim {
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	if want := pvc.Spec.Resources.Requests[corev1.ResourceStorage]; want.Cmp(size) < 0 {
		size = want
	}
	class := pv.Spec.StorageClassName // "" must be said, or a default class is set
	return &corev1.PersistentVolumeClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: pvc.Name, Namespace: pvc.Namespace, Labels: pvc.Labels,
			Annotations: userAnnotations(pvc.Annotations)},
		// Not the data source: the data are there.
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: pvc.Spec.AccessModes, VolumeName: pv.Name, StorageClassName: &class, VolumeMode: pvc.Spec.VolumeMode,
			VolumeAttributesClassName: pv.Spec.VolumeAttributesClassName,
			Resources:                 corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
}

// userAnnotations returns the annotations without those of controllers.
func userAnnotations(all map[string]string) map[string]string {
	kept := map[string]string{}
	for name, value := range all {
		domain, _, _ := strings.Cut(name, "/")
		if domain != "holdfast.dev" && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") {
			kept[name] = value
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
