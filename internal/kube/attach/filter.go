package attach

import (
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// needsSync reports whether an update of a VolumeAttachment requires work. It
// ignores bookkeeping and what this controller itself writes before a call and
// after a failed one: otherwise each failure would cause a retry at once.
func (c *Controller) needsSync(before, after *storagev1.VolumeAttachment) bool {
	if before.ResourceVersion == after.ResourceVersion {
		return true // a resync
	}
	return !equality.Semantic.DeepEqual(withoutBookkeeping(before, c.finalizer), withoutBookkeeping(after, c.finalizer))
}

// withoutBookkeeping returns a copy that shares all fields except those it clears.
func withoutBookkeeping(va *storagev1.VolumeAttachment, finalizer string) *storagev1.VolumeAttachment {
	copied := *va
	copied.ResourceVersion = ""
	copied.ManagedFields = nil
	copied.Generation = 0
	copied.Status.AttachError = nil
	copied.Status.DetachError = nil
	copied.Finalizers = slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == finalizer })
	copied.Annotations = maps.Clone(va.Annotations)
	for key := range (intent{}).annotations() {
		delete(copied.Annotations, key)
	}
	return &copied
}
