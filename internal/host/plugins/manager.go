// Package plugins keeps the drivers that registered with the host. For each
// registration socket that package pluginwatch reports it does what the
// kubelet's plugin manager does: GetInfo, validate, NodeGetInfo, register,
// NotifyRegistrationStatus, with the same time limits and the same back-off.
// Instances are kept by socket and identity, not by driver name: several
// instances of one driver may be registered, the newest serves, and when one
// goes away the next newest takes over.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiclient"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// The limits of the kubelet (pkg/kubelet/pluginmanager).
const (
	dialLimit     = 10 * time.Second
	infoLimit     = time.Second
	nodeInfoLimit = 2 * time.Minute
	notifyLimit   = 5 * time.Second
	firstBackoff  = 500 * time.Millisecond
	longestRetry  = 2*time.Minute + 2*time.Second
)

// ErrNotRegistered tells that no instance of a driver is registered now.
var ErrNotRegistered = errors.New("not registered")

// Driver is a registered instance of a driver. Its Client stays usable for
// calls that run when the instance is replaced.
type Driver struct {
	Name   string
	Socket pluginwatch.Socket
	Client *csiclient.Client
	Node   NodeInfo
}

// NodeInfo is who this machine is to a driver.
type NodeInfo struct {
	ID       string
	Topology map[string]string
	// MaxVolumes is 0 when the driver sets no limit.
	MaxVolumes int64
}

// Manager keeps the registered drivers. It is safe for concurrent use.
type Manager struct {
	logger *slog.Logger

	mu        sync.Mutex
	instances map[string][]*Driver // by driver name, oldest first
	changed   chan struct{}        // closed and replaced at each change
	scanned   bool                 // the sockets that were there at the start are known
	untried   int                  // sockets whose first attempt has not ended
}

// New makes a Manager without drivers.
func New(logger *slog.Logger) *Manager {
	return &Manager{logger: logger, instances: map[string][]*Driver{}, changed: make(chan struct{})}
}

// Run follows the changes until the context ends, and then gives up every
// registration.
func (m *Manager) Run(ctx context.Context, changes <-chan pluginwatch.Change) {
	var workers sync.WaitGroup
	defer workers.Wait()
	cancels := map[pluginwatch.Socket]context.CancelFunc{}
	for {
		select {
		case <-ctx.Done():
			for _, cancel := range cancels {
				cancel()
			}
			return
		case change := <-changes:
			if change.Scanned {
				m.tried(0, true)
				continue
			}
			if change.Removed {
				if cancel, known := cancels[change.Socket]; known {
					cancel()
					delete(cancels, change.Socket)
				}
				continue
			}
			// One worker per socket and identity: a file that was replaced
			// starts with a fresh back-off.
			worker, cancel := context.WithCancel(ctx)
			cancels[change.Socket] = cancel
			m.tried(+1, false)
			workers.Go(func() { m.attend(worker, change.Socket) })
		}
	}
}

// attend registers the plugin behind a socket, as often as that takes, and
// unregisters it when the socket goes away.
func (m *Manager) attend(ctx context.Context, socket pluginwatch.Socket) {
	pause := firstBackoff
	firstTry := sync.OnceFunc(func() { m.tried(-1, false) })
	for {
		driver, err := m.register(ctx, socket)
		firstTry()
		if err == nil {
			<-ctx.Done()
			m.remove(driver)
			return
		}
		if ctx.Err() != nil {
			return
		}
		m.logger.Warn("the plugin is not registered", "socket", socket.Path, "error", err, "retry", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, longestRetry)
	}
}

// Driver returns the instance that serves calls for a driver now.
func (m *Manager) Driver(name string) (*Driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	instances := m.instances[name]
	if len(instances) == 0 {
		return nil, fmt.Errorf("driver %s: %w", name, ErrNotRegistered)
	}
	return instances[len(instances)-1], nil
}

// Names lists the registered drivers.
func (m *Manager) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.instances))
	for name := range m.instances {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Wait returns the driver as soon as it is registered.
func (m *Manager) Wait(ctx context.Context, name string) (*Driver, error) {
	for {
		m.mu.Lock()
		changed := m.changed
		m.mu.Unlock()
		driver, err := m.Driver(name)
		if err == nil {
			return driver, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// tried counts the sockets that were not tried yet.
func (m *Manager) tried(difference int, scanned bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.untried += difference
	m.scanned = m.scanned || scanned
	m.announce()
}

// Settle waits until every plugin that was there at the start, and those that
// came meanwhile, has been tried once: who is not registered then is not going
// to be soon.
func (m *Manager) Settle(ctx context.Context) {
	for {
		m.mu.Lock()
		settled, changed := m.scanned && m.untried == 0, m.changed
		m.mu.Unlock()
		if settled {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Changed returns a channel that is closed at the next registration or removal.
func (m *Manager) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// add makes an instance the serving one. All instances of a driver on one
// machine must agree on who the machine is.
func (m *Manager) add(driver *Driver) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.instances[driver.Name] {
		if other.Node.ID != driver.Node.ID {
			return fmt.Errorf("driver %s says that this node is %q; its instance at %s says %q",
				driver.Name, driver.Node.ID, other.Socket.Path, other.Node.ID)
		}
	}
	m.instances[driver.Name] = append(m.instances[driver.Name], driver)
	m.announce()
	return nil
}

func (m *Manager) remove(driver *Driver) {
	m.mu.Lock()
	left := slices.DeleteFunc(m.instances[driver.Name], func(d *Driver) bool { return d == driver })
	m.instances[driver.Name] = left
	if len(left) == 0 {
		delete(m.instances, driver.Name)
	}
	m.announce()
	m.mu.Unlock()
	m.logger.Info("driver unregistered", "driver", driver.Name, "socket", driver.Socket.Path)
	if err := driver.Client.Close(); err != nil {
		m.logger.Warn("the connection to the driver was not closed", "driver", driver.Name, "error", err)
	}
}

func (m *Manager) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}
