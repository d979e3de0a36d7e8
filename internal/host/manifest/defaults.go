package manifest

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// lastApplied is kubectl's copy of the manifest. It has no meaning here, and that of
// a Secret contains its values.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// nameLabel is on every namespace (KEP 2161), so that selectors can name it.
const nameLabel = "kubernetes.io/metadata.name"

// defaultGrace is in seconds.
const defaultGrace = 30

// SetDefaults sets the defaults of the API server. It is idempotent.
func SetDefaults(object store.Object) {
	if annotations := object.GetAnnotations(); annotations[lastApplied] != "" {
		delete(annotations, lastApplied)
		if len(annotations) == 0 {
			object.SetAnnotations(nil)
		}
	}
	switch object := object.(type) {
	case *corev1.Namespace:
		defaultNamespace(object)
	case *corev1.Secret:
		defaultSecret(object)
	case *storagev1.CSIDriver:
		defaultDriver(&object.Spec)
	case *storagev1.StorageClass:
		setIfNil(&object.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		setIfNil(&object.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	case *corev1.PersistentVolume:
		if object.Spec.PersistentVolumeReclaimPolicy == "" {
			object.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
		setIfNil(&object.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		defaultReference(object.Spec.ClaimRef, "v1", "PersistentVolumeClaim")
	case *corev1.PersistentVolumeClaim:
		defaultClaim(&object.Spec, object.Namespace)
	case *snapshotv1.VolumeSnapshotContent:
		defaultReference(&object.Spec.VolumeSnapshotRef, snapshotv1.SchemeGroupVersion.String(), "VolumeSnapshot")
	case *corev1.Pod:
		defaultPod(object)
	}
}

func setIfNil[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func defaultNamespace(namespace *corev1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[nameLabel] = namespace.Name
	namespace.Spec = corev1.NamespaceSpec{}
}

// defaultSecret takes stringData over data, as the API server does.
func defaultSecret(secret *corev1.Secret) {
	if secret.Type == "" {
		secret.Type = corev1.SecretTypeOpaque
	}
	if len(secret.StringData) > 0 && secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for key, value := range secret.StringData {
		secret.Data[key] = []byte(value)
	}
	secret.StringData = nil
}

func defaultDriver(spec *storagev1.CSIDriverSpec) {
	setIfNil(&spec.AttachRequired, true)
	setIfNil(&spec.PodInfoOnMount, false)
	setIfNil(&spec.StorageCapacity, false)
	setIfNil(&spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	setIfNil(&spec.RequiresRepublish, false)
	setIfNil(&spec.SELinuxMount, false)
	setIfNil(&spec.PreventPodSchedulingIfMissing, false)
	if len(spec.VolumeLifecycleModes) == 0 {
		spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// defaultReference fills in the kind and drops what only some writers set.
func defaultReference(reference *corev1.ObjectReference, version, kind string) {
	if reference == nil {
		return
	}
	*reference = corev1.ObjectReference{
		APIVersion: version, Kind: kind, Namespace: reference.Namespace, Name: reference.Name, UID: reference.UID,
	}
}

// defaultClaim keeps both fields for the source the same, as the API server
// does for sources of the claim's own namespace.
func defaultClaim(spec *corev1.PersistentVolumeClaimSpec, namespace string) {
	setIfNil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	if source := spec.DataSource; source != nil {
		source.APIGroup = orNil(source.APIGroup)
	}
	if reference := spec.DataSourceRef; reference != nil {
		reference.APIGroup, reference.Namespace = orNil(reference.APIGroup), orNil(reference.Namespace)
		if reference.Namespace != nil && *reference.Namespace == namespace {
			reference.Namespace = nil
		}
	}
	switch source, reference := spec.DataSource, spec.DataSourceRef; {
	case source != nil && reference == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	case source == nil && reference != nil && reference.Namespace == nil && isSource(reference.Kind): // of others, the one given is refused
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: reference.APIGroup, Kind: reference.Kind,
			Name: reference.Name}
	}
}

func isSource(kind string) bool { return kind == "PersistentVolumeClaim" || kind == "VolumeSnapshot" }

func orNil(text *string) *string {
	if text != nil && *text == "" {
		return nil
	}
	return text
}

func defaultPod(pod *corev1.Pod) {
	if pod.Spec.RestartPolicy == "" {
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	setIfNil(&pod.Spec.TerminationGracePeriodSeconds, int64(defaultGrace))
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].Ephemeral; source != nil && source.VolumeClaimTemplate != nil {
			defaultClaim(&source.VolumeClaimTemplate.Spec, pod.Namespace)
		}
	}
}
