package host

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// users lists the users of an object, and the effect of its deletion on each.
func (d *deleter) users(object store.Object) ([]string, error) {
	var found sentences
	switch object := object.(type) {
	case *corev1.Pod:
		if object.Status.Phase != corev1.PodSucceeded && object.Status.Phase != corev1.PodFailed {
			found.add("its containers end and its volumes are taken away first", nil)
		}
	case *corev1.PersistentVolumeClaim:
		d.usersOfClaim(&found, object)
	case *corev1.PersistentVolume:
		if reference := object.Spec.ClaimRef; reference != nil && object.Status.Phase == corev1.VolumeBound {
			found.add(fmt.Sprintf("bound to PersistentVolumeClaim %q: it goes after the claim",
				store.Key(reference.Namespace, reference.Name)), nil)
		}
	case *snapshotv1.VolumeSnapshot:
		found.add(gather(d.tx.Claims(), object.GetName(), "being restored by PersistentVolumeClaim",
			func(pvc *corev1.PersistentVolumeClaim) string {
				return restores(pvc, claim.SourceSnapshot, object.Namespace, object.Name)
			}))
	case *snapshotv1.VolumeSnapshotContent:
		d.usersOfContent(&found, object)
	case *storagev1.CSIDriver:
		found.add(gather(d.tx.Uses(), object.GetName(),
			"without it, defaults apply to this driver's volumes that are in use:", func(use *store.VolumeUse) string {
				return when(use.Driver == object.Name && !use.Idle(), use.Label)
			}))
	case *storagev1.StorageClass:
		found.add(gather(d.tx.Claims(), object.GetName(), "without it, these claims wait, or cannot grow:",
			func(pvc *corev1.PersistentVolumeClaim) string {
				return when(pvc.DeletionTimestamp == nil && pvc.Spec.StorageClassName != nil &&
					*pvc.Spec.StorageClassName == object.Name, claimKey(pvc))
			}))
	case *storagev1.VolumeAttributesClass:
		found.add(gather(d.tx.Claims(), object.GetName(), "without it, these claims wait if their volume has other attributes:", func(pvc *corev1.PersistentVolumeClaim) string {
			return when(pvc.Spec.VolumeAttributesClassName != nil &&
				*pvc.Spec.VolumeAttributesClassName == object.Name, claimKey(pvc))
		}))
	case *snapshotv1.VolumeSnapshotClass:
		found.add(gather(d.tx.Snapshots(), object.GetName(), "without it, these snapshots wait:",
			func(snapshot *snapshotv1.VolumeSnapshot) string {
				class, bound := snapshot.Spec.VolumeSnapshotClassName, snapshot.Status != nil &&
					snapshot.Status.BoundVolumeSnapshotContentName != nil
				return when(class != nil && *class == object.Name && !bound, store.KeyOf(snapshot))
			}))
	case *corev1.Secret:
		d.usersOfSecret(&found, object)
	case *corev1.ConfigMap:
		d.usersOfValues(&found, podvalues.ConfigMap, object)
	}
	return found.result()
}

func when(ok bool, name string) string {
	if ok {
		return name
	}
	return ""
}

func (d *deleter) usersOfClaim(found *sentences, pvc *corev1.PersistentVolumeClaim) {
	found.add(gather(d.tx.Pods(), pvc.Name, "used by Pod", func(pod *corev1.Pod) string {
		return when(isAlive(pod) && pod.Namespace == pvc.Namespace && usesClaim(pod, pvc.Name),
			store.Key(pod.Namespace, pod.Name))
	}))
	if owner := metav1.GetControllerOf(pvc); owner != nil && owner.Kind == "Pod" { // a generic ephemeral volume
		pod, err := d.tx.Pods().Get(store.Key(pvc.Namespace, owner.Name))
		if pod != nil && pod.UID == owner.UID && isAlive(pod) {
			found.add(fmt.Sprintf("used by Pod %s, whose own volume it is", store.KeyOf(pod)), nil)
		}
		found.add("", err)
	}
	found.add(gather(d.tx.Snapshots(), pvc.Name, "a snapshot of it is being made: VolumeSnapshot",
		func(snapshot *snapshotv1.VolumeSnapshot) string {
			source, ready := snapshot.Spec.Source.PersistentVolumeClaimName, snapshot.Status != nil &&
				snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
			return when(source != nil && *source == pvc.Name && snapshot.Namespace == pvc.Namespace && !ready,
				store.KeyOf(snapshot))
		}))
	found.add(gather(d.tx.Claims(), pvc.Name, "being copied by PersistentVolumeClaim",
		func(other *corev1.PersistentVolumeClaim) string {
			return restores(other, claim.SourceClaim, pvc.Namespace, pvc.Name)
		}))
	volume, err := d.tx.Volumes().Get(pvc.Spec.VolumeName)
	if err != nil || volume == nil || volume.Spec.CSI == nil {
		found.add("", err)
		return
	}
	if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
		found.add(fmt.Sprintf("its volume %s stays (reclaimPolicy: Retain), as PersistentVolume %q",
			volume.Spec.CSI.VolumeHandle, volume.Name), nil)
	}
}

// restores names a claim that is going to be a copy of a source and is not yet.
func restores(pvc *corev1.PersistentVolumeClaim, kind claim.SourceKind, namespace, name string) string {
	reference, err := claim.SourceOf(pvc)
	if err != nil || pvc.Spec.VolumeName != "" ||
		reference != (claim.SourceRef{Kind: kind, Namespace: namespace, Name: name}) {
		return ""
	}
	return claimKey(pvc)
}

func isAlive(pod *corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func usesClaim(pod *corev1.Pod, name string) bool {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == name {
			return true
		}
	}
	return false
}

func (d *deleter) usersOfContent(found *sentences, content *snapshotv1.VolumeSnapshotContent) {
	reference := content.Spec.VolumeSnapshotRef
	key := store.Key(reference.Namespace, reference.Name)
	snapshot, err := d.tx.Snapshots().Get(key)
	if err == nil && snapshot != nil && reference.UID == snapshot.UID {
		found.add(fmt.Sprintf("bound to VolumeSnapshot %q: it goes after the snapshot", key), nil)
	}
	found.add("", err)
}

func (d *deleter) usersOfSecret(found *sentences, secret *corev1.Secret) {
	found.add(gather(d.tx.Volumes(), secret.Name, "without it, calls for these volumes fail: PersistentVolume",
		func(volume *corev1.PersistentVolume) string {
			return when(namesSecret(volume, secret), volume.Name)
		}))
	d.usersOfValues(found, podvalues.Secret, secret)
	found.add(gather(d.tx.Pods(), secret.Name, "without it, inline volumes cannot be published again: Pod",
		func(pod *corev1.Pod) string {
			return when(isAlive(pod) && pod.Namespace == secret.Namespace && inlineSecret(pod, secret.Name),
				store.Key(pod.Namespace, pod.Name))
		}))
}

// usersOfValues are the pods whose containers refer to a Secret or a ConfigMap.
func (d *deleter) usersOfValues(found *sentences, kind string, object store.Object) {
	found.add(gather(d.tx.Pods(), object.GetName(), "without it, containers cannot be started again: Pod",
		func(pod *corev1.Pod) string {
			return when(isAlive(pod) && pod.Namespace == object.GetNamespace() && podvalues.Refers(pod, kind, object.GetName()),
				store.Key(pod.Namespace, pod.Name))
		}))
}

func namesSecret(volume *corev1.PersistentVolume, secret *corev1.Secret) bool {
	source := volume.Spec.CSI
	if source == nil {
		return false
	}
	references := []*corev1.SecretReference{
		source.ControllerPublishSecretRef, source.NodeStageSecretRef, source.NodePublishSecretRef,
		source.ControllerExpandSecretRef, source.NodeExpandSecretRef, claim.ModifySecret(volume),
	}
	if deletion, known := claim.DeletionSecret(volume); known {
		references = append(references, deletion)
	}
	for _, reference := range references {
		if reference != nil && reference.Name == secret.Name && reference.Namespace == secret.Namespace {
			return true
		}
	}
	return false
}

func inlineSecret(pod *corev1.Pod, name string) bool {
	for _, volume := range pod.Spec.Volumes {
		if source := volume.CSI; source != nil && source.NodePublishSecretRef != nil &&
			source.NodePublishSecretRef.Name == name {
			return true
		}
	}
	return false
}
