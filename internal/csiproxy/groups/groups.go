// Package groups is the API of the Kubernetes project's csi-proxy: one pipe per group of
// operations and version, compatible on the wire with its releases. Each group has a file
// with its versions, files with their conversion to package api, and a folder with its
// protos.
//
// Calls of older versions are converted to those of the newest by the names of their
// fields (package convert). Only calls with fields of another form have functions.
//
// A new version changes its group's files only: a line in the list of versions with its
// calls, their functions, a proto if fields differ from those of all older versions, and
// in the test the bytes of each call.
package groups

import (
	"slices"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Versions returns all versions of all groups, those of a group from the newest.
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
