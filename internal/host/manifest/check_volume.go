package manifest

import (
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

func checkClaim(pvc *corev1.PersistentVolumeClaim) []string {
	return checkClaimSpec("spec", pvc)
}

// checkClaimSpec also serves the template of a generic ephemeral volume.
func checkClaimSpec(at string, pvc *corev1.PersistentVolumeClaim) []string {
	trim := func(err error) string {
		return strings.Replace(strings.TrimPrefix(err.Error(), claim.Describe(pvc)+": "), "spec", at, 1)
	}
	problems := checkAccessModes(at+".accessModes", pvc.Spec.AccessModes)
	if _, err := claim.SizeOf(pvc); err != nil {
		problems = append(problems, trim(err))
	}
	problems = append(problems, checkFraction(at+".resources.requests.storage",
		pvc.Spec.Resources.Requests[corev1.ResourceStorage])...)
	if source, err := claim.SourceOf(pvc); err != nil {
		problems = append(problems, trim(err))
	} else if source.Namespace != pvc.Namespace && source.Kind != claim.SourceNone {
		problems = append(problems, fmt.Sprintf("%s.dataSourceRef.namespace: a source in another namespace (%q) is not supported",
			at, source.Namespace))
	}
	problems = append(problems, checkSources(at, pvc)...)
	problems = append(problems, checkMode(at, pvc.Spec.VolumeMode)...)
	if pvc.Spec.Selector != nil {
		found := metav1validation.ValidateLabelSelector(pvc.Spec.Selector,
			metav1validation.LabelSelectorValidationOptions{}, field.NewPath(at, "selector"))
		problems = append(problems, texts(found)...)
	}
	problems = append(problems, reference(at+".storageClassName", pvc.Spec.StorageClassName)...)
	problems = append(problems, reference(at+".volumeAttributesClassName", pvc.Spec.VolumeAttributesClassName)...)
	return append(problems, reference(at+".volumeName", &pvc.Spec.VolumeName)...)
}

// checkFraction refuses less than a byte, which is always a mistake. A cluster
// accepts it with a warning.
func checkFraction(at string, size resource.Quantity) []string {
	if size.Sign() <= 0 || size.CmpInt64(1) >= 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s is less than a byte (m is a thousandth): write M or Mi for megabytes",
		at, size.String())}
}

// checkSources refuses two different sources, as the API server does.
func checkSources(at string, pvc *corev1.PersistentVolumeClaim) []string {
	first, second := pvc.Spec.DataSource, pvc.Spec.DataSourceRef
	if first == nil || second == nil {
		return nil
	}
	same := equality.Semantic.DeepEqual(first.APIGroup, second.APIGroup) && first.Kind == second.Kind &&
		first.Name == second.Name
	if !same {
		return []string{at + ".dataSource: differs from dataSourceRef"}
	}
	return nil
}

// reference checks a name that may be absent or empty.
func reference(at string, name *string) []string {
	if name == nil || *name == "" {
		return nil
	}
	return subdomain(at, *name)
}

func subdomain(at, name string) (problems []string) {
	for _, problem := range validation.IsDNS1123Subdomain(name) {
		problems = append(problems, at+": "+problem)
	}
	return problems
}

func checkMode(at string, mode *corev1.PersistentVolumeMode) []string {
	if mode == nil {
		return nil
	}
	return oneOf(at+".volumeMode", *mode, corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)
}

func checkAccessModes(at string, modes []corev1.PersistentVolumeAccessMode) (problems []string) {
	if len(modes) == 0 {
		problems = append(problems, at+": at least one is needed")
	}
	for i, mode := range modes {
		if _, err := (claim.Modes{}).AccessMode(mode); err != nil {
			problems = append(problems, fmt.Sprintf("%s[%d]: %v", at, i, err))
		}
		if mode == corev1.ReadWriteOncePod && len(modes) > 1 {
			problems = append(problems, at+": ReadWriteOncePod must be the only mode")
		}
	}
	return problems
}

func checkVolumeObject(volume *corev1.PersistentVolume) []string {
	spec := volume.Spec
	problems := checkAccessModes("spec.accessModes", spec.AccessModes)
	size, sized := spec.Capacity[corev1.ResourceStorage]
	switch {
	case !sized || len(spec.Capacity) > 1:
		problems = append(problems, "spec.capacity: names storage, and nothing else")
	case size.Sign() <= 0:
		problems = append(problems, fmt.Sprintf("spec.capacity.storage: %s is not above zero", size.String()))
	}
	problems = append(problems, oneOf("spec.persistentVolumeReclaimPolicy", spec.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	problems = append(problems, checkMode("spec", spec.VolumeMode)...)
	problems = append(problems, reference("spec.storageClassName", &spec.StorageClassName)...)
	problems = append(problems, reference("spec.volumeAttributesClassName", spec.VolumeAttributesClassName)...)
	if claimRef := spec.ClaimRef; claimRef != nil && (claimRef.Name == "" || claimRef.Namespace == "") {
		problems = append(problems, "spec.claimRef: needs a name and a namespace")
	}
	if spec.NodeAffinity != nil && (spec.NodeAffinity.Required == nil || len(spec.NodeAffinity.Required.NodeSelectorTerms) == 0) {
		problems = append(problems, "spec.nodeAffinity.required.nodeSelectorTerms: at least one is needed")
	}
	return append(problems, checkSource(spec.CSI)...)
}

func checkSource(source *corev1.CSIPersistentVolumeSource) []string {
	if source == nil {
		return []string{"spec.csi: is missing"}
	}
	problems := driverName("spec.csi.driver", source.Driver)
	if source.VolumeHandle == "" {
		problems = append(problems, "spec.csi.volumeHandle: is missing")
	}
	for _, secret := range []struct {
		name      string
		reference *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", source.ControllerPublishSecretRef}, {"nodeStageSecretRef", source.NodeStageSecretRef},
		{"nodePublishSecretRef", source.NodePublishSecretRef},
		{"controllerExpandSecretRef", source.ControllerExpandSecretRef},
		{"nodeExpandSecretRef", source.NodeExpandSecretRef},
	} {
		if given := secret.reference; given != nil && (given.Name == "" || given.Namespace == "") {
			problems = append(problems, fmt.Sprintf("spec.csi.%s: needs a name and a namespace", secret.name))
		}
	}
	return problems
}

func checkSnapshotClass(class *snapshotv1.VolumeSnapshotClass) []string {
	problems := append(driverName("driver", class.Driver), checkParameters(class.Parameters, true)...)
	if _, err := claim.ParseSnapshotClass(class.Name, class.Parameters); err != nil {
		problems = append(problems, strings.TrimPrefix(err.Error(), fmt.Sprintf("VolumeSnapshotClass %q: ", class.Name)))
	}
	return append(problems, checkDeletionPolicy("deletionPolicy", class.DeletionPolicy)...)
}

func checkDeletionPolicy(at string, policy snapshotv1.DeletionPolicy) []string {
	return oneOf(at, policy, snapshotv1.VolumeSnapshotContentDelete, snapshotv1.VolumeSnapshotContentRetain)
}

func checkSnapshot(snapshot *snapshotv1.VolumeSnapshot) (problems []string) {
	source := snapshot.Spec.Source
	if (source.PersistentVolumeClaimName == nil) == (source.VolumeSnapshotContentName == nil) {
		problems = append(problems, "spec.source: names one of persistentVolumeClaimName and volumeSnapshotContentName")
	}
	for _, named := range []struct {
		at   string
		name *string
	}{
		{"spec.source.persistentVolumeClaimName", source.PersistentVolumeClaimName},
		{"spec.source.volumeSnapshotContentName", source.VolumeSnapshotContentName},
		{"spec.volumeSnapshotClassName", snapshot.Spec.VolumeSnapshotClassName},
	} {
		if named.name != nil { // an empty name is refused, too
			problems = append(problems, subdomain(named.at, *named.name)...)
		}
	}
	return problems
}

func checkContent(content *snapshotv1.VolumeSnapshotContent) []string {
	spec := content.Spec
	problems := append(driverName("spec.driver", spec.Driver), checkDeletionPolicy("spec.deletionPolicy",
		spec.DeletionPolicy)...)
	if spec.VolumeSnapshotRef.Name == "" || spec.VolumeSnapshotRef.Namespace == "" {
		problems = append(problems, "spec.volumeSnapshotRef: needs a name and a namespace")
	}
	volume, snapshot := spec.Source.VolumeHandle, spec.Source.SnapshotHandle
	if (volume == nil) == (snapshot == nil) {
		problems = append(problems, "spec.source: names one of volumeHandle and snapshotHandle")
	}
	if volume != nil && *volume == "" || snapshot != nil && *snapshot == "" {
		problems = append(problems, "spec.source: the handle is empty")
	}
	if mode := spec.SourceVolumeMode; mode != nil {
		problems = append(problems, oneOf("spec.sourceVolumeMode", *mode, corev1.PersistentVolumeFilesystem,
			corev1.PersistentVolumeBlock)...)
	}
	return problems
}
