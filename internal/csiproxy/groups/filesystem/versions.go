// Package filesystem is the group for directories and links.
package filesystem

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.Filesystem]{
		Name:    "filesystem",
		Service: "Filesystem",
		Part:    func(host hub.Host) hub.Filesystem { return host.Filesystem },
	}
	return []version.Definition{
		group.Version("v2alpha1", symlinkCalls(), contentsCalls()),
		group.Version("v1", symlinkCalls()),
		group.Version("v1beta2", symlinkCalls()),
		group.Version("v1beta1", contextCalls()),
		group.Version("v1alpha1", contextCalls()),
	}
}
