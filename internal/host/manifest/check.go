package manifest

import (
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Finalizers that the host sets by itself and removes again; the names are
// Kubernetes'.
const (
	ClaimProtection  = "kubernetes.io/pvc-protection"
	VolumeProtection = "kubernetes.io/pv-protection"
	// SnapshotProtection begins those of snapshots, contents, and claims that
	// are the source of one.
	snapshotProtection = "snapshot.storage.kubernetes.io/"
	attachProtection   = "external-attacher/"
	provisionerStem    = "external-provisioner.volume.kubernetes.io/"
	cloneProtection    = "provisioner.storage.kubernetes.io/"
)

func isOwnFinalizer(name string) bool {
	if name == ClaimProtection || name == VolumeProtection {
		return true
	}
	return slices.ContainsFunc([]string{snapshotProtection, attachProtection, provisionerStem, cloneProtection},
		func(stem string) bool { return strings.HasPrefix(name, stem) })
}

// checkMeta checks what all kinds have.
func checkMeta(meta metav1.Object, kind store.Kind) []string {
	problems := checkName(meta.GetName(), kind.Kind)
	switch {
	case !kind.Namespaced && meta.GetNamespace() != "":
		problems = append(problems, "metadata.namespace: objects of this kind have none")
	case kind.Namespaced:
		for _, problem := range validation.IsDNS1123Label(meta.GetNamespace()) {
			problems = append(problems, "metadata.namespace: "+problem)
		}
	}
	for i, name := range meta.GetFinalizers() {
		if !isOwnFinalizer(name) {
			problems = append(problems, fmt.Sprintf("metadata.finalizers[%d]: this host never removes the finalizer %q, so the object could not be deleted", i, name))
		}
	}
	labels := metav1validation.ValidateLabels(meta.GetLabels(), field.NewPath("metadata", "labels"))
	annotations := apivalidation.ValidateAnnotations(meta.GetAnnotations(), field.NewPath("metadata", "annotations"))
	return append(problems, texts(append(labels, annotations...))...)
}

func checkName(name, kind string) (problems []string) {
	if name == "" {
		return []string{"metadata.name: is missing"}
	}
	var found []string
	switch kind {
	case "Namespace":
		found = validation.IsDNS1123Label(name)
	case "CSIDriver": // a driver's name may have capitals (CSI spec, GetPluginInfo)
		return driverName("metadata.name", name)
	default:
		found = validation.IsDNS1123Subdomain(name)
	}
	for _, problem := range found {
		problems = append(problems, "metadata.name: "+problem)
	}
	return problems
}

// maximumDriverName is CSI's and the API's limit, in bytes.
const maximumDriverName = 63

func driverName(at, name string) (problems []string) {
	if name == "" {
		return []string{at + ": is missing"}
	}
	if len(name) > maximumDriverName {
		problems = append(problems, fmt.Sprintf("%s: a driver's name has %d bytes at most", at, maximumDriverName))
	}
	for _, problem := range validation.IsDNS1123Subdomain(strings.ToLower(name)) {
		problems = append(problems, at+": "+problem)
	}
	return problems
}

// texts are the API's own findings, without the values in them.
func texts(list field.ErrorList) (problems []string) {
	for _, found := range list {
		problems = append(problems, fmt.Sprintf("%s: %s", found.Field, found.Detail))
	}
	return problems
}

// check has the rules of a kind's own fields.
func check(object store.Object) []string {
	switch object := object.(type) {
	case *corev1.Secret:
		return checkSecret(object)
	case *corev1.ConfigMap:
		return checkConfigMap(object)
	case *storagev1.CSIDriver:
		return checkDriver(object)
	case *storagev1.StorageClass:
		return checkClass(object)
	case *storagev1.VolumeAttributesClass:
		return append(driverName("driverName", object.DriverName), checkParameters(object.Parameters, false)...)
	case *snapshotv1.VolumeSnapshotClass:
		return checkSnapshotClass(object)
	case *snapshotv1.VolumeSnapshotContent:
		return checkContent(object)
	case *snapshotv1.VolumeSnapshot:
		return checkSnapshot(object)
	case *corev1.PersistentVolume:
		return checkVolumeObject(object)
	case *corev1.PersistentVolumeClaim:
		return checkClaim(object)
	case *corev1.Pod:
		return checkPod(object)
	}
	return nil // a Namespace has nothing but its name
}

// oneOf refuses a value that is not one of the known ones.
func oneOf[T ~string](at string, value T, known ...T) []string {
	if slices.Contains(known, value) {
		return nil
	}
	if len(known) == 2 {
		return []string{fmt.Sprintf("%s: %q is neither %s nor %s", at, value, known[0], known[1])}
	}
	words := make([]string, len(known))
	for i, word := range known {
		words[i] = string(word)
	}
	return []string{fmt.Sprintf("%s: %q is none of %s", at, value, strings.Join(words, ", "))}
}

// Limits of class parameters (k8s.io/api/storage/v1, StorageClass).
const (
	maximumParameters     = 512
	maximumParameterBytes = 256 << 10
)

func checkParameters(parameters map[string]string, mayBeEmpty bool) (problems []string) {
	size := 0
	for key, value := range parameters {
		if key == "" {
			problems = append(problems, "parameters: a key is empty")
		}
		size += len(key) + len(value)
	}
	switch {
	case len(parameters) == 0 && !mayBeEmpty:
		problems = append(problems, "parameters: at least one is needed")
	case len(parameters) > maximumParameters:
		problems = append(problems, fmt.Sprintf("parameters: %d are too many; %d at most", len(parameters),
			maximumParameters))
	case size > maximumParameterBytes:
		problems = append(problems, fmt.Sprintf("parameters: have %d bytes; %d at most", size, maximumParameterBytes))
	}
	return problems
}

func checkClass(class *storagev1.StorageClass) []string {
	problems := checkParameters(class.Parameters, true)
	if class.Provisioner == "" {
		problems = append(problems, "provisioner: is missing")
	} else {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(class.Provisioner)) {
			problems = append(problems, "provisioner: "+problem)
		}
	}
	if _, err := claim.ParseClass(class); err != nil {
		problems = append(problems, strings.TrimPrefix(err.Error(), fmt.Sprintf("StorageClass %q: ", class.Name)))
	}
	problems = append(problems, oneOf("reclaimPolicy", claim.ReclaimPolicy(class), corev1.PersistentVolumeReclaimDelete,
		corev1.PersistentVolumeReclaimRetain)...)
	if mode := class.VolumeBindingMode; mode != nil {
		problems = append(problems, oneOf("volumeBindingMode", *mode, storagev1.VolumeBindingImmediate,
			storagev1.VolumeBindingWaitForFirstConsumer)...)
	}
	if _, err := claim.FlattenAllowed(class.AllowedTopologies); err != nil {
		problems = append(problems, "allowedTopologies: "+err.Error())
	}
	return problems
}

// minimumAllocatablePeriod is the API's, in seconds.
const minimumAllocatablePeriod = 10

func checkDriver(driver *storagev1.CSIDriver) (problems []string) {
	spec := driver.Spec
	for i, mode := range spec.VolumeLifecycleModes {
		problems = append(problems, oneOf(fmt.Sprintf("spec.volumeLifecycleModes[%d]", i), mode,
			storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	problems = append(problems, oneOf("spec.fsGroupPolicy", claim.FSGroupPolicy(driver),
		storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy)...)
	if period := spec.NodeAllocatableUpdatePeriodSeconds; period != nil && *period < minimumAllocatablePeriod {
		problems = append(problems, fmt.Sprintf("spec.nodeAllocatableUpdatePeriodSeconds: %d is less than %d", *period,
			minimumAllocatablePeriod))
	}
	if spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0 {
		problems = append(problems, "spec.serviceAccountTokenInSecrets: has no meaning without tokenRequests")
	}
	return problems
}
