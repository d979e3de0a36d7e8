package content

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
)

// Matters reports whether a change needs a step. What this controller writes
// itself does not: the status, the finalizers and its own annotations.
// Becoming ready does, also when another controller wrote it, since a deletion may
// wait for it.
func Matters(old, changed View, own string) bool {
	if old.Meta.ResourceVersion == changed.Meta.ResourceVersion {
		return true // a resync
	}
	if changed.Ready && !old.Ready {
		return true
	}
	return !equality.Semantic.DeepEqual(old.Spec, changed.Spec) ||
		!equality.Semantic.DeepEqual(decisive(old.Meta, own), decisive(changed.Meta, own))
}

func decisive(meta metav1.ObjectMeta, own string) metav1.ObjectMeta {
	meta.ResourceVersion, meta.ManagedFields, meta.Finalizers = "", nil, nil
	meta.Annotations = maps.Clone(meta.Annotations)
	delete(meta.Annotations, own)
	delete(meta.Annotations, claim.SnapshotRequestAnnotation)
	delete(meta.Annotations, claim.NodeAffinityAnnotation)
	return meta
}
