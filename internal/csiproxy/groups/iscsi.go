package groups

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// iscsiVersions returns those of the group, the newest first.
func iscsiVersions() []api.Definition {
	g := group[api.ISCSI]{
		Name:    "iscsi",
		Service: "Iscsi",
		Part:    func(host api.Host) api.ISCSI { return host.ISCSI },
	}
	return []api.Definition{
		g.Version("v1alpha2", iscsiCalls(), mutualCalls()),
		g.Version("v1alpha1", iscsiCalls()),
	}
}
