package plugins

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// State is where the registration of a socket is.
type State string

// The states of a registration.
const (
	StateRegistering State = "Registering" // the first attempt runs
	StateRegistered  State = "Registered"
	StateAway        State = "Away"   // registered, but the endpoint does not answer
	StateFailed      State = "Failed" // it is tried again at Next
)

// DriverStatus is one instance of a driver, or a socket that did not become one.
type DriverStatus struct {
	// Name is as the plugin says; it is empty for one that did not say.
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	// Socket is of the registration; Endpoint is where the driver serves.
	Socket   string `json:"socket"`
	Endpoint string `json:"endpoint,omitempty"`
	State    State  `json:"state"`
	// Serving says that new calls go to this instance.
	Serving bool `json:"serving"`
	// Unready says that the driver fails Probe, or does not answer it; LastError has why.
	Unready bool `json:"unready,omitempty"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	Node  NodeInfo  `json:"node"`
	// Capabilities are written as service/NAME.
	Capabilities []string `json:"capabilities,omitempty"`
	Warnings     []string `json:"warnings,omitempty"`
	LastError    string   `json:"lastError,omitempty"`
	// Attempts failed in a row; the next one is at Next.
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
}

// List describes every socket: by driver name, the serving instance first.
func (m *Manager) List() []DriverStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := map[*entry]*instance{}
	for _, instances := range m.instances {
		for _, one := range instances {
			of[one.entry] = one
		}
	}
	list := make([]DriverStatus, 0, len(m.desired))
	for _, e := range slices.Backward(m.desired) {
		list = append(list, m.status(e, of[e]))
	}
	slices.SortStableFunc(list, func(a, b DriverStatus) int {
		if order := cmp.Compare(a.Name, b.Name); order != 0 {
			return order
		}
		return cmp.Compare(rank(a), rank(b))
	})
	return list
}

func rank(s DriverStatus) int {
	switch {
	case s.Serving:
		return 0
	case s.State == StateRegistered:
		return 1
	}
	return 2
}

func (m *Manager) status(e *entry, one *instance) DriverStatus {
	status := DriverStatus{Name: e.name, Socket: e.socket.Path, State: StateRegistering, Since: e.since,
		Attempts: e.attempts, Next: e.next}
	if e.failure != nil {
		status.State, status.LastError = StateFailed, e.failure.Error()
	}
	if one == nil {
		return status
	}
	if status.State = StateRegistering; e.done {
		status.State, status.Since = StateRegistered, one.since
	}
	status.Endpoint, status.Version, status.Capabilities, status.Warnings = one.endpoint, one.version, one.capabilities, one.warnings
	status.Node = one.driver.Node
	status.Node.Topology = maps.Clone(one.driver.Node.Topology)
	status.Serving = newest(m.instances[one.name]) == one
	if one.away {
		status.State = StateAway
	}
	status.Unready = one.unready != nil
	if err := cmp.Or(one.failure, one.unready); err != nil {
		status.LastError = err.Error()
	}
	return status
}

// Nodes returns this machine's node ID for each driver, also within withdraw after the
// driver's last instance went.
func (m *Manager) Nodes() map[string]NodeInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := map[string]NodeInfo{}
	for name, gone := range m.departed {
		nodes[name] = gone.node
	}
	for name, instances := range m.instances {
		serving := cmp.Or(newest(instances), instances[len(instances)-1])
		nodes[name] = serving.driver.Node
	}
	return nodes
}
