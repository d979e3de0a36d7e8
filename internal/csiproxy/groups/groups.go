// Package groups is the API that csi-proxy's users know: one pipe per group of
// operations and version, compatible on the wire with the releases of the
// Kubernetes project. Each group has a file with its versions, files with their
// conversion to package api, and a folder with its protos.
//
// Calls of older versions are converted to those of the newest by the names of
// their fields (package convert); functions of their own have those alone whose
// fields have another form.
//
// A new version touches its group's files only: a line in its list of versions with
// the calls that it has, their functions and a proto where fields differ from all
// older ones, and in the test the bytes of each call.
package groups

import (
	"slices"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Versions are all versions of all groups, those of a group from the newest.
func Versions() []api.Definition {
	return slices.Concat(
		filesystemVersions(),
		diskVersions(),
		volumeVersions(),
		smbVersions(),
		iscsiVersions(),
		systemVersions(),
	)
}
