// Package csiproxy has the API that the Kubernetes enhancement proposal "CSI
// plugins on Windows nodes" names, in versions. A version is a folder: its proto,
// and its translation to package api. Next to them is a client.
package csiproxy

import (
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/compose"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1alpha1"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/v1beta1"
)

// Versions are all versions of the API, the newest first.
func Versions() []api.Definition {
	operations := compose.New()
	return []api.Definition{
		v1.Definition(operations),
		v1beta1.Definition(operations),
		v1alpha1.Definition(operations),
	}
}
