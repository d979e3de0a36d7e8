package cluster

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// ClaimByUID finds a claim by its UID.
func ClaimByUID() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "uid", Values: func(c *corev1.PersistentVolumeClaim) []string {
		return []string{string(c.UID)}
	}}
}

// ClaimByVolumeName finds the claim that is, or wants to be, bound to a volume.
func ClaimByVolumeName() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "volumeName", Values: func(c *corev1.PersistentVolumeClaim) []string {
		return named(c.Spec.VolumeName)
	}}
}

// ClaimBySource finds the claims that are made of something; values are those
// of ClaimSource and SnapshotSource.
func ClaimBySource() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "source", Values: func(c *corev1.PersistentVolumeClaim) []string {
		return named(sourceOf(c))
	}}
}

// ClaimSource is the value of ClaimBySource for the claims made of a claim.
func ClaimSource(namespace, name string) string {
	return "PersistentVolumeClaim/" + namespace + "/" + name
}

// SnapshotSource is the value of ClaimBySource for the claims made of a snapshot.
func SnapshotSource(namespace, name string) string {
	return "VolumeSnapshot/" + namespace + "/" + name
}

func sourceOf(c *corev1.PersistentVolumeClaim) string {
	if s := c.Spec.DataSource; s != nil {
		return s.Kind + "/" + c.Namespace + "/" + s.Name
	}
	if s := c.Spec.DataSourceRef; s != nil {
		return s.Kind + "/" + cmp.Or(foreignNamespace(c), c.Namespace) + "/" + s.Name
	}
	return ""
}

// ClaimByForeignSource finds the claims that are made of something in another namespace,
// by that namespace.
func ClaimByForeignSource() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "foreignSource", Values: func(c *corev1.PersistentVolumeClaim) []string {
		return named(foreignNamespace(c))
	}}
}

// foreignNamespace is the namespace of a claim's source, "" if that is the claim's own.
func foreignNamespace(c *corev1.PersistentVolumeClaim) string {
	source := c.Spec.DataSourceRef
	if c.Spec.DataSource != nil || source == nil || source.Namespace == nil || *source.Namespace == c.Namespace {
		return ""
	}
	return *source.Namespace
}

// ClaimByAttributesClass finds the claims that name a VolumeAttributesClass.
func ClaimByAttributesClass() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "attributesClass", Values: func(c *corev1.PersistentVolumeClaim) []string {
		if c.Spec.VolumeAttributesClassName == nil {
			return nil
		}
		return named(*c.Spec.VolumeAttributesClassName)
	}}
}

// ClaimByClass finds the claims that name a StorageClass.
func ClaimByClass() Index[*corev1.PersistentVolumeClaim] {
	return Index[*corev1.PersistentVolumeClaim]{Name: "class", Values: func(c *corev1.PersistentVolumeClaim) []string {
		if c.Spec.StorageClassName == nil {
			return nil
		}
		return named(*c.Spec.StorageClassName)
	}}
}

// VolumeByHandle finds PersistentVolumes by HandleKey.
func VolumeByHandle() Index[*corev1.PersistentVolume] {
	return Index[*corev1.PersistentVolume]{Name: "handle", Values: func(v *corev1.PersistentVolume) []string {
		if v.Spec.CSI == nil {
			return nil
		}
		return []string{HandleKey(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle)}
	}}
}

// HandleKey is the value of VolumeByHandle for a driver's volume.
func HandleKey(driver, handle string) string { return driver + "^" + handle }

// AttachmentByVolume finds VolumeAttachments by the name of their PersistentVolume.
func AttachmentByVolume() Index[*storagev1.VolumeAttachment] {
	return Index[*storagev1.VolumeAttachment]{Name: "volume", Values: func(a *storagev1.VolumeAttachment) []string {
		if a.Spec.Source.PersistentVolumeName == nil {
			return nil
		}
		return named(*a.Spec.Source.PersistentVolumeName)
	}}
}

// AttachmentByNode finds VolumeAttachments by the name of their node.
func AttachmentByNode() Index[*storagev1.VolumeAttachment] {
	return Index[*storagev1.VolumeAttachment]{Name: "node", Values: func(a *storagev1.VolumeAttachment) []string {
		return []string{a.Spec.NodeName}
	}}
}

// CSINodeByDriver finds the nodes on which a driver is registered.
func CSINodeByDriver() Index[*storagev1.CSINode] {
	return Index[*storagev1.CSINode]{Name: "driver", Values: func(n *storagev1.CSINode) []string {
		var drivers []string
		for _, d := range n.Spec.Drivers {
			drivers = append(drivers, d.Name)
		}
		return drivers
	}}
}

// named is the list of one value, none if that is empty.
func named(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}
