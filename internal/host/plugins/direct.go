package plugins

import (
	"context"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// Offer is a driver without a registrar that the caller vouches for, such as one
// that the host started itself.
type Offer struct {
	manager *Manager
	entry   *entry
}

// Offer registers the driver that serves, now or later, at a socket, for as long
// as the offer is not withdrawn.
func (m *Manager) Offer(path string) *Offer {
	e := &entry{socket: pluginwatch.Socket{Path: path}, direct: true, ended: make(chan struct{})}
	m.addDesired(e)
	return &Offer{manager: m, entry: e}
}

// Withdraw unregisters the driver. What it returns is closed when the calls that
// the driver has are over.
func (o *Offer) Withdraw() <-chan struct{} {
	o.manager.removeDesired(func(e *entry) bool { return e == o.entry })
	return o.entry.ended
}

// State reports whether the driver is registered, and if not why. changed is
// closed when that may be different.
func (o *Offer) State() (registered bool, changed <-chan struct{}, failure error) {
	m := o.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	return o.entry.done, m.noted, o.entry.failure
}

// registerDirect reads the registrar's data from the driver itself.
func (m *Manager) registerDirect(ctx context.Context, e *entry) (registered, error) {
	if err := m.network.Reach(ctx, e.socket.Path, true); err != nil {
		return nil, err
	}
	client, err := m.network.Dial(e.socket.Path, csiclient.Options{Logger: m.logger})
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	limited, cancel := context.WithTimeout(ctx, m.timing.identity)
	defer cancel()
	info, err := client.PluginInfo(limited)
	if err != nil {
		return nil, err
	}
	m.named(e, info.GetName())
	plugin, err := m.admit(ctx, e, &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: info.GetName(), Endpoint: e.socket.Path, SupportedVersions: []string{"1.0.0"},
	})
	if err == nil {
		plugin.announced()
	}
	return plugin, err
}
