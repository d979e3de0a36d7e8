// Package iscsi is the group for the machine's iSCSI initiator.
package iscsi

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Versions are those of the group, the newest first.
func Versions() []version.Definition {
	group := api.Group[hub.ISCSI]{
		Name:    "iscsi",
		Service: "Iscsi",
		Part:    func(host hub.Host) hub.ISCSI { return host.ISCSI },
	}
	return []version.Definition{
		group.Version("v1alpha2", calls(), mutualCalls()),
		group.Version("v1alpha1", calls()),
	}
}
