package plugins

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// instance is a registered instance of a driver. What follows the blank line is
// guarded by the Manager's lock.
type instance struct {
	manager  *Manager
	entry    *entry
	name     string
	endpoint string

	answers
	away    bool // it does not answer
	since   time.Time
	failure error // why it is away
	unready error // the last answer to Probe
}

// set replaces the driver's earlier answers about itself.
func (i *instance) set(found answers) {
	m := i.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if i.driver != nil {
		m.retire(i.entry, i.driver)
		found.trusted.Store(true)
	}
	i.answers, i.away, i.failure, i.unready, i.since = found, false, nil, nil, time.Now()
}

// now is the latest info of the driver.
func (i *instance) now() answers {
	i.manager.mu.Lock()
	defer i.manager.mu.Unlock()
	return i.answers
}

// successor is where calls go that this instance does not accept any more: they
// were never begun, and the instance that serves now can do them.
func (i *instance) successor() string {
	m := i.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range slices.Backward(m.instances[i.name]) {
		if other != i && !other.away {
			return other.endpoint
		}
	}
	return ""
}

// add makes an instance the serving one. All instances of a driver on one
// machine must agree on who the machine is.
func (m *Manager) add(one *instance) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.agrees(one, one.driver.Node); err != nil {
		return err
	}
	if before := newest(m.instances[one.name]); before != nil {
		if missing := lacking(before.capabilities, one.capabilities); missing != "" {
			// An older version may have to come back: it serves, and this is said.
			one.warnings = append(one.warnings, fmt.Sprintf("it lacks capabilities of the instance at %s: %s",
				before.endpoint, missing))
			m.logger.Warn("the driver's newest instance can do less than the one before",
				"driver", one.name, "socket", one.entry.socket.Path, "before", before.entry.socket.Path, "missing", missing)
		}
	}
	m.instances[one.name] = append(m.instances[one.name], one)
	delete(m.departed, one.name)
	m.announce()
	return nil
}

func (m *Manager) agrees(one *instance, node NodeInfo) error {
	for _, other := range m.instances[one.name] {
		if other != one && other.driver.Node.ID != node.ID {
			return fmt.Errorf("driver %s says that this node is %q; its instance at %s says %q: stop one of them",
				one.name, node.ID, other.entry.socket.Path, other.driver.Node.ID)
		}
	}
	return nil
}

// announced is called when the registration is complete.
func (i *instance) announced() {
	now := i.now()
	now.trusted.Store(true)
	i.manager.logger.Info("driver registered", "driver", i.name, "version", now.version,
		"socket", i.entry.socket.Path, "node", now.driver.Node.ID)
}

// remove takes the instance out, and only this one.
func (i *instance) remove() {
	m := i.manager
	m.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(m.instances[i.name]), func(other *instance) bool { return other == i })
	m.instances[i.name] = left
	if len(left) == 0 {
		delete(m.instances, i.name)
		m.depart(i.name, i.driver.Node)
	}
	i.trusted.Store(true)
	m.retire(i.entry, i.driver)
	m.announce()
	m.mu.Unlock()
	m.logger.Info("driver unregistered", "driver", i.name, "socket", i.entry.socket.Path)
}

// depart remembers a driver whose last instance went for as long as its node
// stays published.
func (m *Manager) depart(name string, node NodeInfo) {
	gone := &departure{node: node}
	m.departed[name] = gone
	time.AfterFunc(m.timing.withdraw, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.departed[name] == gone {
			delete(m.departed, name)
			m.announce()
		}
	})
}

// retire closes the connection to an instance that no longer serves, after its running
// calls and those about to begin.
func (m *Manager) retire(e *entry, driver *Driver) {
	ctx := m.ctx
	e.clients.Add(1)
	m.workers.Go(func() {
		defer e.clients.Done()
		if ctx == nil { // Run ends
			_ = driver.Client.Close()
			return
		}
		_ = concurrency.Sleep(ctx, m.timing.late)
		if err := driver.Client.Drain(ctx); err != nil {
			m.logger.Warn("the connection to the driver was not closed", "driver", driver.Name, "error", err)
		}
	})
}
