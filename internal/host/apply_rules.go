package host

import (
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// mutability says whether a field of an object that exists may change.
type mutability int

const (
	fixed mutability = iota // never
	free                    // always
	once                    // while it is not set
	asked                   // it depends: merger.ask
)

// changes are the fields of a kind that may change; the others are fixed. A
// path covers everything below it.
type changes map[string]mutability

func (c changes) of(pattern string) mutability {
	for path := pattern; path != ""; {
		if rule, listed := c[path]; listed {
			return rule
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return fixed
}

// changesOf follows the API server's validation of updates (k8s.io/kubernetes
// v1.37, pkg/apis/{core,storage}/validation) and the rules in the CRDs of
// external-snapshotter v8. All of a Pod's spec is fixed: the fields that may change on
// a cluster have no meaning here.
func changesOf(kind string) changes {
	switch kind {
	case "Secret":
		return changes{"data": asked, "immutable": asked}
	case "ConfigMap":
		return changes{"data": asked, "binaryData": asked, "immutable": asked}
	case "CSIDriver":
		return changes{"spec": free, "spec.attachRequired": fixed, "spec.volumeLifecycleModes": fixed}
	case "StorageClass":
		return changes{"allowVolumeExpansion": free, "mountOptions": free, "allowedTopologies": free}
	case "VolumeSnapshotClass":
		return changes{"driver": free, "parameters": free, "deletionPolicy": free}
	case "VolumeSnapshotContent":
		return changes{"spec.deletionPolicy": free, "spec.volumeSnapshotClassName": free, "spec.sourceVolumeMode": once,
			"spec.volumeSnapshotRef.uid": once}
	case "VolumeSnapshot":
		return changes{"spec.volumeSnapshotClassName": asked}
	case "PersistentVolume":
		return changes{
			"spec": free, "spec.csi": fixed, "spec.csi.controllerExpandSecretRef": once, "spec.volumeMode": fixed,
			"spec.nodeAffinity": once, "spec.volumeAttributesClassName": asked, "spec.claimRef": once,
		}
	case "PersistentVolumeClaim":
		return changes{"spec.resources.requests.storage": asked, "spec.volumeAttributesClassName": asked,
			"spec.volumeName": once}
	}
	return nil
}

// inherit copies the fields that the object does not set from the stored one: those
// that the host filled in, and those of its volume.
func (m *merger) inherit(before store.Object) {
	switch given := m.merged.(type) {
	case *corev1.PersistentVolumeClaim:
		stored := likewise(given, before)
		takeOver(&given.Spec.StorageClassName, stored.Spec.StorageClassName)
		if given.Spec.VolumeName == "" {
			given.Spec.VolumeName = stored.Spec.VolumeName
		}
	case *corev1.PersistentVolume:
		m.inheritVolume(given, likewise(given, before))
	case *corev1.Pod:
		if given.Spec.NodeName == "" {
			given.Spec.NodeName = likewise(given, before).Spec.NodeName
		}
	case *snapshotv1.VolumeSnapshot:
		takeOver(&given.Spec.VolumeSnapshotClassName, likewise(given, before).Spec.VolumeSnapshotClassName)
	case *snapshotv1.VolumeSnapshotContent:
		stored := likewise(given, before)
		takeOver(&given.Spec.VolumeSnapshotClassName, stored.Spec.VolumeSnapshotClassName)
		takeOver(&given.Spec.SourceVolumeMode, stored.Spec.SourceVolumeMode)
		if given.Spec.VolumeSnapshotRef.UID == "" {
			given.Spec.VolumeSnapshotRef.UID = stored.Spec.VolumeSnapshotRef.UID
		}
	}
}

func takeOver[T any](field **T, stored *T) {
	if *field == nil {
		*field = stored
	}
}

// inheritVolume also keeps the size that a bound volume has grown to: its
// manifest is older than that.
func (m *merger) inheritVolume(given, stored *corev1.PersistentVolume) {
	takeOver(&given.Spec.VolumeAttributesClassName, stored.Spec.VolumeAttributesClassName)
	takeOver(&given.Spec.NodeAffinity, stored.Spec.NodeAffinity)
	if stored.Spec.CSI != nil {
		takeOver(&given.Spec.CSI.ControllerExpandSecretRef, stored.Spec.CSI.ControllerExpandSecretRef)
	}
	takeOver(&given.Spec.ClaimRef, stored.Spec.ClaimRef)
	if stored.Spec.ClaimRef == nil || stored.Spec.ClaimRef.UID == "" {
		return
	}
	if given.Spec.ClaimRef.UID == "" {
		given.Spec.ClaimRef.UID = stored.Spec.ClaimRef.UID
	}
	desired, has := given.Spec.Capacity[corev1.ResourceStorage], stored.Spec.Capacity[corev1.ResourceStorage]
	if desired.Cmp(has) != 0 {
		m.warnings = append(m.warnings, fmt.Sprintf("%s: spec.capacity.storage: stays at %s, which its claim's volume has, instead of %s",
			m.given.Name(), has.String(), desired.String()))
		given.Spec.Capacity = stored.Spec.Capacity
	}
}

// ask decides about a field that may change under conditions; the text says why
// it may not.
func (m *merger) ask(d difference, before store.Object) string {
	switch stored := before.(type) {
	case *corev1.Secret:
		if stored.Immutable != nil && *stored.Immutable {
			return m.cannotChange(d) + " (it is immutable)"
		}
	case *corev1.ConfigMap:
		if stored.Immutable != nil && *stored.Immutable {
			return m.cannotChange(d) + " (it is immutable)"
		}
	case *corev1.PersistentVolumeClaim:
		return m.askClaim(d, stored, likewise(stored, m.merged))
	case *corev1.PersistentVolume:
		if d.after == nil {
			return "cannot be taken away again"
		}
	case *snapshotv1.VolumeSnapshot:
		if stored.Status != nil && stored.Status.BoundVolumeSnapshotContentName != nil {
			return m.cannotChange(d)
		}
	}
	return ""
}

func (m *merger) askClaim(d difference, stored, given *corev1.PersistentVolumeClaim) string {
	if stored.Status.Phase != corev1.ClaimBound {
		return "cannot be changed before the claim has a volume; delete the claim and apply it again to make it otherwise"
	}
	if d.pattern == "spec.volumeAttributesClassName" {
		if current := stored.Status.CurrentVolumeAttributesClassName; current != nil && (d.after == nil || d.after == "") {
			return fmt.Sprintf("cannot be taken away: the volume has the attributes of %q", *current)
		}
		return ""
	}
	desired, has := given.Spec.Resources.Requests[corev1.ResourceStorage], stored.Spec.Resources.Requests[corev1.ResourceStorage]
	if desired.Cmp(has) > 0 {
		return m.askGrowth(stored)
	}
	// What is asked for may be lowered again while the volume has not grown to
	// it, so that a growth that cannot be is got rid of (KEP 1790).
	granted := stored.Status.Capacity[corev1.ResourceStorage]
	if desired.Cmp(granted) <= 0 {
		return fmt.Sprintf("a volume cannot shrink: it has %s, and only a request above that can be lowered, to more than that", granted.String())
	}
	return ""
}

// askGrowth has the checks of the admission plugin PersistentVolumeClaimResize.
func (m *merger) askGrowth(stored *corev1.PersistentVolumeClaim) string {
	class := m.state.classOf(stored)
	switch {
	case class == nil:
		return "only a claim with a StorageClass that exists can grow"
	case class.AllowVolumeExpansion == nil || !*class.AllowVolumeExpansion:
		return fmt.Sprintf("StorageClass %q does not say allowVolumeExpansion: true", class.Name)
	}
	return ""
}
