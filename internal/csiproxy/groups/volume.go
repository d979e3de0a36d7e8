package groups

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// volumeVersions returns those of the group, the newest first.
func volumeVersions() []api.Definition {
	g := group[api.Volumes]{
		Name:    "volume",
		Service: "Volume",
		Part:    func(host api.Host) api.Volumes { return host.Volumes },
	}
	return []api.Definition{
		g.Version("v2alpha1", targetCalls(), closestCalls()),
		g.Version("v1", targetCalls()),
		g.Version("v1beta3", targetCalls()),
		g.Version("v1beta2", pathCalls(), pathStatsCalls(), pathCacheCalls()),
		g.Version("v1beta1", pathCalls(), pathStatsCalls()),
		g.Version("v1alpha1", pathCalls()),
	}
}
