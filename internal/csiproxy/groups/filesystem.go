package groups

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// filesystemVersions returns those of the group, the newest first.
func filesystemVersions() []api.Definition {
	g := group[api.Filesystem]{
		Name:    "filesystem",
		Service: "Filesystem",
		Part:    func(host api.Host) api.Filesystem { return host.Filesystem },
	}
	return []api.Definition{
		g.Version("v2alpha1", symlinkCalls(), contentsCalls()),
		g.Version("v1", symlinkCalls()),
		g.Version("v1beta2", symlinkCalls()),
		g.Version("v1beta1", contextCalls()),
		g.Version("v1alpha1", contextCalls()),
	}
}
