package lease

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// metrics are those of the leases that a process holds or waits for.
type metrics struct {
	leading          *prometheus.GaugeVec
	transitions, age *prometheus.Desc
	clock            clock

	mu    sync.Mutex
	known map[string]observed // by the name of the lease
}

// observed is what a process knows of a lease.
type observed struct {
	transitions int32
	// renewed is when this process last renewed the lease or, for a standby, first observed
	// the last renewal by its holder.
	renewed time.Time
}

func newMetrics(registerer prometheus.Registerer, c clock) (*metrics, error) {
	m := &metrics{
		leading: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 while this process holds the lease.",
		}, []string{"name"}),
		transitions: prometheus.NewDesc("holdfast_lease_transitions_total",
			"How often the holder of the lease has changed, as the Lease counts it.", []string{"name"}, nil),
		age: prometheus.NewDesc("holdfast_lease_renew_age_seconds",
			"Time since this process renewed the lease or, if another one holds it, since this process observed a renewal.", []string{"name"}, nil),
		clock: c, known: map[string]observed{},
	}
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(m.leading); err != nil {
		return nil, err
	}
	return m, registerer.Register(m)
}

// observe records the state of a lease that was renewed at a time.
func (m *metrics) observe(name string, lease *coordinationv1.Lease, renewed time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := observed{renewed: renewed}
	if known := lease.Spec.LeaseTransitions; known != nil {
		one.transitions = *known
	}
	m.known[name] = one
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.transitions
	to <- m.age
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for name, one := range m.known {
		to <- prometheus.MustNewConstMetric(m.transitions, prometheus.CounterValue, float64(one.transitions), name)
		to <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, now.Sub(one.renewed).Seconds(), name)
	}
}
