package groups

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// diskVersions returns those of the group, the newest first.
func diskVersions() []api.Definition {
	g := group[api.Disks]{
		Name:    "disk",
		Service: "Disk",
		Part:    func(host api.Host) api.Disks { return host.Disks },
	}
	return []api.Definition{
		g.Version("v1", numberCalls()),
		g.Version("v1beta3", numberCalls()),
		g.Version("v1beta2", textCalls(), textIDCalls(), textStateCalls()),
		g.Version("v1beta1", textCalls(), textIDCalls()),
		g.Version("v1alpha1", textCalls(), textNameCalls()),
	}
}
