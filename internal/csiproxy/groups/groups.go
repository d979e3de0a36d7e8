// Package groups is the API that csi-proxy's users know: one pipe per group of
// operations and version, compatible on the wire with the releases of the
// Kubernetes project. Each group has a folder with its protos, its versions and
// their translation to the hub.
//
// A new version touches its group's folder only: a line in versions.go with the
// calls that it has, their functions and a proto where fields differ from all older
// ones, and in the test the bytes of each call.
package groups

import (
	"slices"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/disk"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/iscsi"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/smb"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/system"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/volume"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are all versions of all groups, those of a group from the newest.
func Versions() []version.Definition {
	return slices.Concat(
		filesystem.Versions(),
		disk.Versions(),
		volume.Versions(),
		smb.Versions(),
		iscsi.Versions(),
		system.Versions(),
	)
}
