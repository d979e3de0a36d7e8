package claim

import (
	"bytes"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OfferManager is the manager, in metadata.managedFields, of the classes that a host
// offers by itself.
const OfferManager = "holdfast-host"

// IsOffered reports whether the host, and not a user, made a class the default one.
func IsOffered(class metav1.Object) bool { return isOffers(class, "f:annotations") }

// IsUntouched reports whether a StorageClass is as the host offered it: no user has applied
// one of its name.
func IsUntouched(class metav1.Object) bool { return isOffers(class, "f:provisioner") }

// isOffers reports whether a field of a class is the host's own.
func isOffers(class metav1.Object, field string) bool {
	return slices.ContainsFunc(class.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == OfferManager && entry.FieldsV1 != nil &&
			bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"`+field+`":`))
	})
}

// PreferGiven returns the default classes that a user made so, and all of them if the
// host alone did.
func PreferGiven[T metav1.Object](defaults []T) []T {
	given := slices.DeleteFunc(slices.Clone(defaults), func(class T) bool { return IsOffered(class) })
	if len(given) == 0 {
		return defaults
	}
	return given
}
