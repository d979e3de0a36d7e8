package export

import (
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// namespaces adds those of the claims; default is there everywhere.
func (b *builder) namespaces() {
	var done []string
	for _, pvc := range b.claims {
		if name := pvc.Namespace; name != manifest.DefaultNamespace && !slices.Contains(done, name) {
			done = append(done, name)
			object := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
				ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, known := range b.source.Namespaces {
				if known.Name == name {
					object.Labels = known.Labels
				}
			}
			b.objects = append(b.objects, object)
		}
	}
}

// classes adds the CSIDriver objects and the classes that the volumes name.
func (b *builder) classes() {
	desired := map[string]bool{}
	for _, pv := range b.volumes {
		desired["driver "+pv.Spec.CSI.Driver] = true
		desired["class "+pv.Spec.StorageClassName] = true
		if name := pv.Spec.VolumeAttributesClassName; name != nil {
			desired["attributes "+*name] = true
		}
	}
	for _, o := range b.objects {
		if content, ok := o.(*snapshotv1.VolumeSnapshotContent); ok && content.Spec.VolumeSnapshotClassName != nil {
			desired["snapshots "+*content.Spec.VolumeSnapshotClassName] = true
		}
	}
	for _, o := range b.source.Drivers {
		if desired["driver "+o.Name] {
			b.objects = append(b.objects, &storagev1.CSIDriver{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1",
				Kind: "CSIDriver"}, ObjectMeta: clean(o.ObjectMeta), Spec: o.Spec})
		}
	}
	for _, o := range b.source.Classes {
		if desired["class "+o.Name] {
			copied := o.DeepCopy()
			copied.TypeMeta, copied.ObjectMeta = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1",
				Kind: "StorageClass"}, clean(o.ObjectMeta)
			b.objects = append(b.objects, copied)
		}
	}
	for _, o := range b.source.AttributesClasses {
		if desired["attributes "+o.Name] {
			copied := o.DeepCopy()
			copied.TypeMeta, copied.ObjectMeta = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1",
				Kind: "VolumeAttributesClass"}, clean(o.ObjectMeta)
			b.objects = append(b.objects, copied)
		}
	}
	for _, o := range b.source.SnapshotClasses {
		if desired["snapshots "+o.Name] {
			copied := o.DeepCopy()
			copied.TypeMeta, copied.ObjectMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1",
				Kind: "VolumeSnapshotClass"}, clean(o.ObjectMeta)
			b.objects = append(b.objects, copied)
		}
	}
}

// clean is an object's metadata as a user would write it; that it is the
// default one is for the cluster's administrator to say.
func clean(meta metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: meta.Name, Labels: meta.Labels, Annotations: userAnnotations(meta.Annotations)}
}

// snapshots adds the snapshots of the exported claims that are ready, each with
// a content that exists beforehand.
func (b *builder) snapshots() {
	for _, s := range b.source.Snapshots {
		of := s.Spec.Source.PersistentVolumeClaimName
		if of == nil || !slices.ContainsFunc(b.claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == *of && c.Namespace == s.Namespace }) {
			continue
		}
		content := b.contentOf(s)
		if content == nil || content.Status == nil || content.Status.SnapshotHandle == nil {
			b.warn("snapshot %s is not exported: it is not taken yet", store.KeyOf(s))
			continue
		}
		spec := content.Spec
		b.objects = append(b.objects, &snapshotv1.VolumeSnapshotContent{
			TypeMeta:   metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshotContent"},
			ObjectMeta: metav1.ObjectMeta{Name: content.Name},
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				VolumeSnapshotRef: corev1.ObjectReference{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot",
					Namespace: s.Namespace, Name: s.Name},
				DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Driver: spec.Driver,
				SourceVolumeMode:        spec.SourceVolumeMode,
				VolumeSnapshotClassName: spec.VolumeSnapshotClassName,
				Source:                  snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: content.Status.SnapshotHandle},
			},
		}, &snapshotv1.VolumeSnapshot{
			TypeMeta: metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshot"},
			ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace, Labels: s.Labels,
				Annotations: userAnnotations(s.Annotations)},
			Spec: snapshotv1.VolumeSnapshotSpec{
				Source:                  snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &content.Name},
				VolumeSnapshotClassName: s.Spec.VolumeSnapshotClassName,
			},
		})
	}
}

func (b *builder) contentOf(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotContent {
	if s.Status == nil || s.Status.BoundVolumeSnapshotContentName == nil {
		return nil
	}
	for _, content := range b.source.Contents {
		if content.Name == *s.Status.BoundVolumeSnapshotContentName {
			return content
		}
	}
	return nil
}

// secrets lists the ones that the volumes need; a host never returns their values.
func (b *builder) secrets() {
	for _, pv := range b.volumes {
		csi := pv.Spec.CSI
		for _, ref := range []*corev1.SecretReference{
			csi.ControllerPublishSecretRef, csi.NodeStageSecretRef, csi.NodePublishSecretRef, csi.ControllerExpandSecretRef,
			csi.NodeExpandSecretRef,
		} {
			if ref != nil {
				b.warn("volume %s needs the secret %s in namespace %s: make it there first; it is not exported", pv.Name,
					ref.Name, ref.Namespace)
			}
		}
	}
}
