package attach

import (
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// worthALook tells whether an update of a VolumeAttachment asks for work.
// What differs only in bookkeeping, or in what this controller itself writes
// before the driver is called and after that failed, does not: each failure
// would ask for the next try at once.
func (c *Controller) worthALook(before, after *storagev1.VolumeAttachment) bool {
	if before.ResourceVersion == after.ResourceVersion {
		return true // delivered again on purpose
	}
	return !equality.Semantic.DeepEqual(withoutNoise(before, c.finalizer), withoutNoise(after, c.finalizer))
}

// withoutNoise is a copy that shares all but the fields it clears.
func withoutNoise(va *storagev1.VolumeAttachment, finalizer string) *storagev1.VolumeAttachment {
	quiet := *va
	quiet.ResourceVersion = ""
	quiet.ManagedFields = nil
	quiet.Generation = 0
	quiet.Status.AttachError = nil
	quiet.Status.DetachError = nil
	quiet.Finalizers = slices.DeleteFunc(slices.Clone(va.Finalizers), func(f string) bool { return f == finalizer })
	quiet.Annotations = maps.Clone(va.Annotations)
	for key := range (record{}).annotations() {
		delete(quiet.Annotations, key)
	}
	return &quiet
}
