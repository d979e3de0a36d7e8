// Package disk is the group for physical disks.
package disk

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.Disks]{
		Name:    "disk",
		Service: "Disk",
		Part:    func(host hub.Host) hub.Disks { return host.Disks },
	}
	return []version.Definition{
		group.Version("v1", numberCalls()),
		group.Version("v1beta3", numberCalls()),
		group.Version("v1beta2", textCalls(), textIDCalls(), textStateCalls()),
		group.Version("v1beta1", textCalls(), textIDCalls()),
		group.Version("v1alpha1", textCalls(), textNameCalls()),
	}
}
