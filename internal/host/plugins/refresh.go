package plugins

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Refresh repeats NodeGetInfo of the serving instance, for a changed limit of volumes.
// Another node ID is refused: volumes in use were published under the old one.
func (m *Manager) Refresh(ctx context.Context, name string) error {
	driver, err := m.Driver(name)
	if err != nil {
		return err
	}
	node, _, err := m.askNode(ctx, name, driver.Client)
	if err != nil {
		return err
	}
	if node.ID != driver.Node.ID {
		return fmt.Errorf("driver %s changed its node ID from %q to %q: start it again", name, driver.Node.ID, node.ID)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	at := slices.IndexFunc(m.instances[name], func(i *instance) bool { return i.driver == driver })
	if at < 0 || node.MaxVolumes == driver.Node.MaxVolumes && maps.Equal(node.Topology, driver.Node.Topology) {
		return nil // it went meanwhile, or is unchanged
	}
	renewed := *driver
	renewed.Node = node
	m.instances[name][at].driver = &renewed
	m.announce()
	return nil
}
