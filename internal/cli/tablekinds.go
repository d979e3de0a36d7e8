package cli

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// tableKinds are the kinds in the order in which all of them are shown.
func tableKinds() []tableKind {
	kinds := slices.Concat(podKinds(), volumeKinds(), snapshotKinds(), driverKinds(), otherKinds())
	for i := range kinds {
		for _, kind := range api.Kinds() {
			if kind.Resource == kinds[i].kind.Resource {
				kinds[i].kind = kind
			}
		}
	}
	return kinds
}

func bare(name string) store.Kind { return store.Kind{Resource: name} }

func volumeKinds() []tableKind {
	return append([]tableKind{claimTable(), volumeTable()}, classKinds()...)
}

func claimTable() tableKind {
	return tableKind{bare("persistentvolumeclaims"), []string{"pvc"}, []column{
		{"NAME", false, nameCell},
		{"STATUS", false, of(func(c *corev1.PersistentVolumeClaim) string { return deletedOr(c, string(c.Status.Phase)) })},
		{"VOLUME", false, of(func(c *corev1.PersistentVolumeClaim) string { return c.Spec.VolumeName })},
		{"CAPACITY", false, of(func(c *corev1.PersistentVolumeClaim) string {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return storageOf(c.Status.Capacity)
		})},
		{"ACCESS MODES", false, of(func(c *corev1.PersistentVolumeClaim) string {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return accessModes(c.Status.AccessModes)
		})},
		{"STORAGECLASS", false, of(func(c *corev1.PersistentVolumeClaim) string { return text(c.Spec.StorageClassName) })},
		{"VOLUMEATTRIBUTESCLASS", false, of(func(c *corev1.PersistentVolumeClaim) string { return orUnset(c.Spec.VolumeAttributesClassName) })},
		{"AGE", false, ageCell},
		{"VOLUMEMODE", true, of(func(c *corev1.PersistentVolumeClaim) string { return orUnset(c.Spec.VolumeMode) })},
	}}
}

func volumeTable() tableKind {
	return tableKind{bare("persistentvolumes"), []string{"pv"}, []column{
		{"NAME", false, nameCell},
		{"CAPACITY", false, of(func(v *corev1.PersistentVolume) string { return storageOf(v.Spec.Capacity) })},
		{"ACCESS MODES", false, of(func(v *corev1.PersistentVolume) string { return accessModes(v.Spec.AccessModes) })},
		{"RECLAIM POLICY", false, of(func(v *corev1.PersistentVolume) string { return string(v.Spec.PersistentVolumeReclaimPolicy) })},
		{"STATUS", false, of(func(v *corev1.PersistentVolume) string { return deletedOr(v, string(v.Status.Phase)) })},
		{"CLAIM", false, of(claimOf)},
		{"STORAGECLASS", false, of(func(v *corev1.PersistentVolume) string { return v.Spec.StorageClassName })},
		{"VOLUMEATTRIBUTESCLASS", false, of(func(v *corev1.PersistentVolume) string { return orUnset(v.Spec.VolumeAttributesClassName) })},
		{"REASON", false, of(func(v *corev1.PersistentVolume) string { return v.Status.Reason })},
		{"AGE", false, ageCell},
		{"VOLUMEMODE", true, of(func(v *corev1.PersistentVolume) string { return orUnset(v.Spec.VolumeMode) })},
		{"HANDLE", true, of(func(v *corev1.PersistentVolume) string {
			if v.Spec.CSI == nil {
				return ""
			}
			return v.Spec.CSI.VolumeHandle
		})},
	}}
}

func classKinds() []tableKind {
	return []tableKind{
		{bare("storageclasses"), []string{"sc"}, []column{
			{"NAME", false, of(func(c *storagev1.StorageClass) string {
				if manifest.IsDefault(c) {
					return c.Name + " (default)"
				}
				return c.Name
			})},
			{"PROVISIONER", false, of(func(c *storagev1.StorageClass) string { return c.Provisioner })},
			{"RECLAIMPOLICY", false, of(func(c *storagev1.StorageClass) string { return or(c.ReclaimPolicy, "Delete") })},
			{"VOLUMEBINDINGMODE", false, of(func(c *storagev1.StorageClass) string { return or(c.VolumeBindingMode, "Immediate") })},
			{"ALLOWVOLUMEEXPANSION", false, of(func(c *storagev1.StorageClass) string { return truth(c.AllowVolumeExpansion, false) })},
			{"AGE", false, ageCell},
		}},
		{bare("volumeattributesclasses"), []string{"vac"}, []column{
			{"NAME", false, nameCell},
			{"DRIVERNAME", false, of(func(c *storagev1.VolumeAttributesClass) string { return c.DriverName })},
			{"AGE", false, ageCell},
		}},
		{bare("volumeattachments"), []string{"va"}, []column{
			{"NAME", false, nameCell},
			{"ATTACHER", false, of(func(a *storagev1.VolumeAttachment) string { return a.Spec.Attacher })},
			{"PV", false, of(func(a *storagev1.VolumeAttachment) string { return text(a.Spec.Source.PersistentVolumeName) })},
			{"NODE", false, of(func(a *storagev1.VolumeAttachment) string { return a.Spec.NodeName })},
			{"ATTACHED", false, of(func(a *storagev1.VolumeAttachment) string { return strconv.FormatBool(a.Status.Attached) })},
			{"AGE", false, ageCell},
		}},
	}
}

func snapshotKinds() []tableKind {
	return []tableKind{
		{bare("volumesnapshots"), []string{"vs"}, []column{
			{"NAME", false, nameCell},
			{"READYTOUSE", false, of(func(s *snapshotv1.VolumeSnapshot) string {
				if s.Status == nil || s.Status.ReadyToUse == nil {
					return ""
				}
				return strconv.FormatBool(*s.Status.ReadyToUse)
			})},
			{"SOURCEPVC", false, of(func(s *snapshotv1.VolumeSnapshot) string { return text(s.Spec.Source.PersistentVolumeClaimName) })},
			{"SOURCESNAPSHOTCONTENT", false, of(func(s *snapshotv1.VolumeSnapshot) string { return text(s.Spec.Source.VolumeSnapshotContentName) })},
			{"RESTORESIZE", false, of(func(s *snapshotv1.VolumeSnapshot) string {
				if s.Status == nil || s.Status.RestoreSize == nil {
					return ""
				}
				return s.Status.RestoreSize.String()
			})},
			{"SNAPSHOTCLASS", false, of(func(s *snapshotv1.VolumeSnapshot) string { return text(s.Spec.VolumeSnapshotClassName) })},
			{"SNAPSHOTCONTENT", false, of(func(s *snapshotv1.VolumeSnapshot) string {
				if s.Status == nil {
					return ""
				}
				return text(s.Status.BoundVolumeSnapshotContentName)
			})},
			{"CREATIONTIME", false, func(o store.Object, now time.Time) string {
				snapshot, ok := o.(*snapshotv1.VolumeSnapshot)
				if !ok || snapshot.Status == nil || snapshot.Status.CreationTime == nil {
					return ""
				}
				return age(*snapshot.Status.CreationTime, now)
			}},
			{"AGE", false, ageCell},
		}},
		contentTable(),
		{bare("volumesnapshotclasses"), []string{"vsclass", "vsclasses"}, []column{
			{"NAME", false, nameCell},
			{"DRIVER", false, of(func(c *snapshotv1.VolumeSnapshotClass) string { return c.Driver })},
			{"DELETIONPOLICY", false, of(func(c *snapshotv1.VolumeSnapshotClass) string { return string(c.DeletionPolicy) })},
			{"AGE", false, ageCell},
		}},
	}
}

func contentTable() tableKind {
	return tableKind{bare("volumesnapshotcontents"), []string{"vsc"}, []column{
		{"NAME", false, nameCell},
		{"READYTOUSE", false, of(func(c *snapshotv1.VolumeSnapshotContent) string {
			if c.Status == nil || c.Status.ReadyToUse == nil {
				return ""
			}
			return strconv.FormatBool(*c.Status.ReadyToUse)
		})},
		{"RESTORESIZE", false, of(func(c *snapshotv1.VolumeSnapshotContent) string {
			if c.Status == nil || c.Status.RestoreSize == nil {
				return ""
			}
			return strconv.FormatInt(*c.Status.RestoreSize, 10)
		})},
		{"DELETIONPOLICY", false, of(func(c *snapshotv1.VolumeSnapshotContent) string { return string(c.Spec.DeletionPolicy) })},
		{"DRIVER", false, of(func(c *snapshotv1.VolumeSnapshotContent) string { return c.Spec.Driver })},
		{"VOLUMESNAPSHOTCLASS", false, of(func(c *snapshotv1.VolumeSnapshotContent) string { return text(c.Spec.VolumeSnapshotClassName) })},
		{"VOLUMESNAPSHOT", false, of(func(c *snapshotv1.VolumeSnapshotContent) string { return c.Spec.VolumeSnapshotRef.Name })},
		{"VOLUMESNAPSHOTNAMESPACE", false, of(func(c *snapshotv1.VolumeSnapshotContent) string { return c.Spec.VolumeSnapshotRef.Namespace })},
		{"AGE", false, ageCell},
	}}
}

func driverKinds() []tableKind {
	return []tableKind{
		{bare("csidrivers"), nil, []column{
			{"NAME", false, nameCell},
			{"ATTACHREQUIRED", false, of(func(d *storagev1.CSIDriver) string { return truth(d.Spec.AttachRequired, true) })},
			{"PODINFOONMOUNT", false, of(func(d *storagev1.CSIDriver) string { return truth(d.Spec.PodInfoOnMount, false) })},
			{"STORAGECAPACITY", false, of(func(d *storagev1.CSIDriver) string { return truth(d.Spec.StorageCapacity, false) })},
			{"TOKENREQUESTS", false, of(func(d *storagev1.CSIDriver) string {
				var audiences []string
				for _, request := range d.Spec.TokenRequests {
					audiences = append(audiences, request.Audience)
				}
				if audiences == nil {
					return "<unset>"
				}
				return strings.Join(audiences, ",")
			})},
			{"REQUIRESREPUBLISH", false, of(func(d *storagev1.CSIDriver) string { return truth(d.Spec.RequiresRepublish, false) })},
			{"MODES", false, of(func(d *storagev1.CSIDriver) string {
				var modes []string
				for _, mode := range d.Spec.VolumeLifecycleModes {
					modes = append(modes, string(mode))
				}
				return orNone(strings.Join(modes, ","))
			})},
			{"AGE", false, ageCell},
		}},
		{bare("csinodes"), nil, []column{
			{"NAME", false, nameCell},
			{"DRIVERS", false, of(func(n *storagev1.CSINode) string { return strconv.Itoa(len(n.Spec.Drivers)) })},
			{"AGE", false, ageCell},
		}},
	}
}

func otherKinds() []tableKind {
	return []tableKind{
		{bare("namespaces"), []string{"ns"}, []column{
			{"NAME", false, nameCell},
			{"STATUS", false, of(func(n *corev1.Namespace) string {
				return deletedOr(n, string(cmp.Or(n.Status.Phase, corev1.NamespaceActive)))
			})},
			{"AGE", false, ageCell},
		}},
		{bare("secrets"), nil, []column{
			{"NAME", false, nameCell},
			{"TYPE", false, of(func(s *corev1.Secret) string { return string(s.Type) })},
			{"DATA", false, of(func(s *corev1.Secret) string { return strconv.Itoa(len(s.Data)) })},
			{"AGE", false, ageCell},
		}},
		{bare("configmaps"), []string{"cm"}, []column{
			{"NAME", false, nameCell},
			{"DATA", false, of(func(c *corev1.ConfigMap) string { return strconv.Itoa(len(c.Data) + len(c.BinaryData)) })},
			{"AGE", false, ageCell},
		}},
		{bare("events"), []string{"ev"}, []column{
			{"LAST SEEN", false, func(o store.Object, now time.Time) string { return lastSeen(o, now) }},
			{"TYPE", false, of(func(e *corev1.Event) string { return e.Type })},
			{"REASON", false, of(func(e *corev1.Event) string { return e.Reason })},
			{"OBJECT", false, of(func(e *corev1.Event) string {
				return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
			})},
			{"SOURCE", true, of(func(e *corev1.Event) string { return e.Source.Component })},
			{"MESSAGE", false, of(func(e *corev1.Event) string { return strings.TrimSpace(e.Message) })},
			{"FIRST SEEN", true, func(o store.Object, now time.Time) string { return ageCell(o, now) }},
			{"COUNT", true, of(func(e *corev1.Event) string { return strconv.Itoa(int(e.Count)) })},
			{"NAME", true, nameCell},
		}},
	}
}

func lastSeen(o store.Object, now time.Time) string {
	event, ok := o.(*corev1.Event)
	if !ok {
		return "<unknown>"
	}
	return age(event.LastTimestamp, now)
}

// accessModes are as kubectl shortens them.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	short := map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX",
		corev1.ReadWriteOncePod: "RWOP",
	}
	var names []string
	for _, mode := range []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod} {
		if slices.Contains(modes, mode) {
			names = append(names, short[mode])
		}
	}
	return strings.Join(names, ",")
}

func storageOf(list corev1.ResourceList) string {
	quantity, has := list[corev1.ResourceStorage]
	if !has {
		return ""
	}
	return quantity.String()
}

func claimOf(volume *corev1.PersistentVolume) string {
	if volume.Spec.ClaimRef == nil {
		return ""
	}
	return store.Key(volume.Spec.ClaimRef.Namespace, volume.Spec.ClaimRef.Name)
}

// text, or and orUnset read optional fields.
func text[T ~string](pointer *T) string { return or(pointer, "") }

func orUnset[T ~string](pointer *T) string { return or(pointer, "<unset>") }

func or[T ~string](pointer *T, otherwise string) string {
	if pointer == nil {
		return otherwise
	}
	return string(*pointer)
}

func truth(pointer *bool, otherwise bool) string {
	if pointer != nil {
		otherwise = *pointer
	}
	return strconv.FormatBool(otherwise)
}

func timeOf(at *metav1.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Format(time.RFC1123Z)
}
