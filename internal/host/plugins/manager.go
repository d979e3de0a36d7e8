// Package plugins keeps the drivers that registered with the host. For each
// registration socket that package pluginwatch reports it follows the kubelet's plugin
// manager: GetInfo, validate, NodeGetInfo, register, NotifyRegistrationStatus, with the
// same time limits and the same back-off. Instances are kept by socket and identity,
// not by driver name: several instances of one driver may be registered, the newest
// that answers serves, and when one goes away the next newest takes over.
//
// The desired world is the sockets that exist, the actual world the instances
// that are registered. One worker per socket and identity brings the second to
// the first, so that a plugin that hangs does not delay another.
package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/pluginwatch"
)

// timing has the limits and pauses.
type timing struct {
	// Those of the kubelet (pkg/kubelet/pluginmanager).
	dial, info, nodeInfo, notify time.Duration
	firstRetry, longestRetry     time.Duration
	// identity bounds the questions that a driver answers from memory.
	identity time.Duration
	// probe is the time between two calls of Probe.
	probe time.Duration
	// withdraw is how long the node of a driver stays published after its last
	// instance went: one that is started again is not seen to have gone.
	withdraw time.Duration
	// late is how long the connection to an instance that went stays open for those
	// who asked for the driver just before.
	late time.Duration
}

func usual() timing {
	return timing{
		dial: 10 * time.Second, info: time.Second, nodeInfo: 2 * time.Minute, notify: 5 * time.Second,
		firstRetry: 500 * time.Millisecond, longestRetry: 2*time.Minute + 2*time.Second,
		identity: 10 * time.Second, probe: 30 * time.Second, withdraw: time.Minute, late: 10 * time.Second,
	}
}

// ErrNotRegistered means that no instance of a driver is registered now.
var ErrNotRegistered = errors.New("not registered")

// Driver is a registered instance of a driver. Its Client stays usable for
// calls that run when the instance is replaced.
type Driver struct {
	Name   string
	Socket pluginwatch.Socket
	Client *client.Client
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
	logger   *slog.Logger
	handlers map[string]handler
	network  Network
	timing   timing

	mu        sync.Mutex
	desired   []*entry               // the sockets that exist, in the order in which they came
	instances map[string][]*instance // the actual world, by driver name, oldest first
	departed  map[string]*departure  // drivers whose last instance went less than withdraw ago
	changed   chan struct{}          // closed and replaced when the actual world changes
	noted     chan struct{}          // closed and replaced also when an attempt ends
	scanned   bool                   // the sockets that were there at the start are known
	untried   int                    // sockets whose first attempt has not ended
	ctx       context.Context        //nolint:containedctx // of Run, for the workers of entries that come later
	workers   *sync.WaitGroup
}

// departure is a driver whose last instance went.
type departure struct{ node NodeInfo }

// New makes a Manager without drivers, which finds them at unix sockets.
func New(logger *slog.Logger) *Manager { return NewOver(sockets{}, logger) }

// NewOver is New for drivers of another network.
func NewOver(network Network, logger *slog.Logger) *Manager {
	m := &Manager{
		logger: logger, network: network, timing: usual(), instances: map[string][]*instance{}, departed: map[string]*departure{},
		changed: make(chan struct{}), noted: make(chan struct{}), workers: &sync.WaitGroup{},
	}
	m.handlers = handlers(m)
	return m
}

// Run follows the changes until the context ends, and then gives up every
// registration.
func (m *Manager) Run(ctx context.Context, changes <-chan pluginwatch.Change) {
	m.start(ctx)
	defer m.workers.Wait()
	defer m.stop()
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-changes:
			switch {
			case change.Scanned:
				m.tried(0, true)
			case change.Removed:
				m.removeDesired(func(e *entry) bool { return !e.direct && e.socket == change.Socket })
			default:
				m.addDesired(&entry{socket: change.Socket}) //nolint:contextcheck // a worker has the time of Run
			}
		}
	}
}

// start begins the work for the sockets that were offered before.
func (m *Manager) start(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ctx = ctx
	for _, e := range m.desired {
		m.begin(e) //nolint:contextcheck // a worker has the time of Run
	}
}

func (m *Manager) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.desired {
		e.cancel()
	}
	m.desired, m.ctx = nil, nil
}

// want adds an entry to the desired world.
func (m *Manager) addDesired(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.since = time.Now()
	m.desired = append(m.desired, e)
	if !e.direct {
		m.untried++
	}
	m.note()
	m.begin(e)
}

// begin starts the worker of an entry. There is one per socket and identity: a
// file that was replaced starts with a fresh back-off.
func (m *Manager) begin(e *entry) {
	if m.ctx == nil {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	e.cancel = cancel
	m.workers.Go(func() {
		defer cancel()
		m.attend(ctx, e)
		if e.ended != nil {
			e.clients.Wait()
			close(e.ended)
		}
	})
}

// dismiss removes entries from the desired world.
func (m *Manager) removeDesired(which func(*entry) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.desired = slices.DeleteFunc(m.desired, func(e *entry) bool {
		gone := which(e)
		switch {
		case gone && e.cancel != nil:
			e.cancel()
		case gone && e.ended != nil: // it never began
			close(e.ended)
		}
		return gone
	})
	m.note()
}

// Driver returns the instance that serves calls for a driver now.
func (m *Manager) Driver(name string) (*Driver, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	serving := newest(m.instances[name])
	if serving != nil {
		return serving.driver, nil
	}
	if away := m.instances[name]; len(away) > 0 {
		last := away[len(away)-1]
		return nil, fmt.Errorf("driver %s: %w: it does not answer at %s since %s: start it again",
			name, ErrNotRegistered, last.endpoint, last.since.Format(time.TimeOnly))
	}
	return nil, fmt.Errorf("driver %s: %w", name, ErrNotRegistered)
}

// newest is the instance that serves: the last that registered, and answers.
func newest(instances []*instance) *instance {
	for _, one := range slices.Backward(instances) {
		if !one.away {
			return one
		}
	}
	return nil
}

// Names lists the drivers that serve.
func (m *Manager) Names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.instances))
	for name, instances := range m.instances {
		if newest(instances) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Wait returns the driver as soon as it is registered.
func (m *Manager) Wait(ctx context.Context, name string) (*Driver, error) {
	for {
		changed := m.Changed()
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
	m.note()
}

// WaitAttempts waits until every plugin that was there at the start or came
// meanwhile has been tried once. A plugin that is not registered then will not be
// registered soon.
func (m *Manager) WaitAttempts(ctx context.Context) {
	for {
		m.mu.Lock()
		complete, noted := m.scanned && m.untried == 0, m.noted
		m.mu.Unlock()
		if complete {
			return
		}
		select {
		case <-noted:
		case <-ctx.Done():
			return
		}
	}
}

// Changed returns a channel that is closed when an instance is registered or
// removed next, stops answering, or answers again.
func (m *Manager) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *Manager) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
	m.note()
}

func (m *Manager) note() {
	close(m.noted)
	m.noted = make(chan struct{})
}
