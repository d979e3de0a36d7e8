package plugins

import (
	"context"
	"fmt"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// handler serves the plugins of one type (k/k pkg/kubelet/pluginmanager/cache,
// PluginHandler).
type handler interface {
	// register validates a plugin and adds it to the actual world. What it
	// returns may be called from then on.
	register(ctx context.Context, e *entry, info *registration.PluginInfo) (registered, error)
}

// registered is a plugin in the actual world.
type registered interface {
	// keep returns nil when the context ended, or why the plugin has to be
	// registered again. The plugin is not in the actual world any more then.
	keep(ctx context.Context) error
	// remove takes the plugin out of the actual world.
	remove()
	// announced is set when the plugin has been notified of its registration.
	announced()
}

func handlers(m *Manager) map[string]handler {
	return map[string]handler{
		registration.CSIPlugin:    csiHandler{m},
		registration.DevicePlugin: unserved{"devices for containers of a cluster are the kubelet's work"},
		registration.DRAPlugin:    unserved{"dynamic resource allocation is the kubelet's work"},
	}
}

// unserved is a type of plugins that the kubelet serves and this host does not.
type unserved struct{ why string }

func (u unserved) register(_ context.Context, _ *entry, info *registration.PluginInfo) (registered, error) {
	return nil, fmt.Errorf("the plugin %q is of type %q; this host serves %s only: %s",
		info.GetName(), info.GetType(), registration.CSIPlugin, u.why)
}

// handlerOf finds who serves a plugin.
func (m *Manager) handlerOf(info *registration.PluginInfo) (handler, error) {
	handler, known := m.handlers[info.GetType()]
	if !known {
		return nil, fmt.Errorf("the plugin %q is of type %q, which is none; this host serves %s only",
			info.GetName(), info.GetType(), registration.CSIPlugin)
	}
	return handler, nil
}
