package host

import (
	"cmp"
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// Machine is what a host uses of its machine, besides the files below its root directory.
// The zero value is the machine that the process runs on.
type Machine struct {
	// BootID identifies the running boot, and Name the machine.
	BootID, Name string
	Mounts       volumes.Mounts
	Containers   func(pod types.UID, name string) pods.Container
	Network      plugins.Network
	// Watch reports the registration sockets below a directory until the context ends.
	Watch func(ctx context.Context, directory string, changes chan<- pluginwatch.Change) error
}

// complete adds what is missing of the machine that the process runs on.
func (m Machine) complete(logger *slog.Logger) (Machine, error) {
	if m.BootID == "" {
		boot, err := store.BootID()
		if err != nil {
			return m, err
		}
		m.BootID = boot
	}
	m.Name = cmp.Or(m.Name, machineName())
	if m.Mounts == nil {
		m.Mounts = volumes.KernelMounts{}
	}
	if m.Watch == nil {
		m.Watch = func(ctx context.Context, directory string, changes chan<- pluginwatch.Change) error {
			return pluginwatch.New(directory, changes, logger).Run(ctx)
		}
	}
	return m, nil
}

// newPlugins returns the manager of the drivers that the machine has.
func (m Machine) newPlugins(logger *slog.Logger) *plugins.Manager {
	if m.Network == nil {
		return plugins.New(logger)
	}
	return plugins.NewOver(m.Network, logger)
}

// root is a root directory and the machine's mounts, for the state that an earlier host left.
type root struct {
	claim.Paths
	mounts volumes.Mounts
}

// Store is the host's store, for readers that run in the same process.
func (h *Host) Store() *store.Store { return h.store }
