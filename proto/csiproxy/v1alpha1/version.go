// Package v1alpha1 has the messages of the first version of the KEP's API, to the
// letter.
package v1alpha1

// Version is the name of this version, also in its pipe's name.
const Version = "v1alpha1"

// The keys of DiskIDs.identifiers.
const (
	Page83Key       = "page83"
	SerialNumberKey = "serialNumber"
)
