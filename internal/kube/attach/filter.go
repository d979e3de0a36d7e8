package attach

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// worthALook tells whether an update of a VolumeAttachment asks for work.
// What differs only in bookkeeping, or in the error this controller itself
// wrote, does not: each failure would ask for the next try at once.
func worthALook(before, after *storagev1.VolumeAttachment) bool {
	if before.ResourceVersion == after.ResourceVersion {
		return true // delivered again on purpose
	}
	return !equality.Semantic.DeepEqual(withoutNoise(before), withoutNoise(after))
}

// withoutNoise is a copy that shares all but the fields it clears.
func withoutNoise(va *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	quiet := *va
	quiet.ResourceVersion = ""
	quiet.ManagedFields = nil
	quiet.Generation = 0
	quiet.Status.AttachError = nil
	quiet.Status.DetachError = nil
	return &quiet
}
