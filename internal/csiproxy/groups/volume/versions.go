// Package volume is the group for volumes and their filesystems.
package volume

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.Volumes]{
		Name:    "volume",
		Service: "Volume",
		Part:    func(host hub.Host) hub.Volumes { return host.Volumes },
	}
	return []version.Definition{
		group.Version("v2alpha1", targetCalls(), closestCalls()),
		group.Version("v1", targetCalls()),
		group.Version("v1beta3", targetCalls()),
		group.Version("v1beta2", pathCalls(), pathStatsCalls(), pathCacheCalls()),
		group.Version("v1beta1", pathCalls(), pathStatsCalls()),
		group.Version("v1alpha1", pathCalls()),
	}
}
