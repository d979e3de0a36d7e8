// Package usage exports what a backend says of the pools and volumes of this machine:
// how full they are, until when, and what is wrong with them. It asks in the background,
// and only while something scrapes: a scrape neither waits for a disk nor reads all
// volumes.
package usage

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/metrics"
)

const (
	// fresh is how old the figures of a pool may be, share the part of the time that
	// reading them may take.
	fresh = 10 * time.Second
	share = 20
	// patience is how long a scrape waits for new figures, and silence how long a backend
	// may take for them before that is a condition of its pools.
	patience = time.Second
	silence  = 30 * time.Second
)

// ConditionUnresponsive is the condition of a pool whose backend does not answer the
// question for its state.
const ConditionUnresponsive = "PoolUnresponsive"

// Pools is a collector of the pools of one backend.
type Pools struct {
	question concurrency.Background[[]backend.Pool]
	silence  time.Duration

	size, available, used, promised, ratio *prometheus.Desc
	inodes, inodesFree, full, condition    *prometheus.Desc

	mu    sync.Mutex
	grown map[string]*growth // by pool
}

// NewPools returns a collector for a driver's backend.
func NewPools(reporter backend.PoolReporter, driver string) *Pools {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("holdfast_pool_"+name, help, append([]string{"pool"}, labels...),
			prometheus.Labels{"driver_name": driver})
	}
	return &Pools{
		question: concurrency.Background[[]backend.Pool]{Ask: reporter.Pools, Fresh: fresh, Share: share},
		silence:  silence, grown: map[string]*growth{},
		size:      desc("size_bytes", "Size of the pool's filesystem."),
		available: desc("available_bytes", "Bytes of the pool that are not used."),
		used: desc("used_bytes", "Used bytes of the pool, by what uses them: volumes, snapshots (also blocks that they share with "+
			"volumes), partial copies, trash (deleted, not removed yet), other files.", "kind"),
		promised:   desc("promised_bytes", "Sum of the sizes of the pool's volumes."),
		ratio:      desc("thin_ratio", "Promised bytes for each byte of the pool's size."),
		inodes:     desc("inodes", "Inodes of the pool's filesystem, if it has a fixed number of them."),
		inodesFree: desc("inodes_free", "Inodes of the pool's filesystem that are free."),
		full: desc("full_seconds", "Seconds until the pool is full if it grows as in the last 24 hours, +Inf if it does not grow; "+
			"absent before 10 minutes of figures are known."),
		condition: desc("condition", "1 while the pool has a condition that is not normal, by its reason as in GetStorageHealth; "+
			ConditionUnresponsive+" if the backend does not answer.", "condition"),
	}
}

// Close returns when the backend is not asked any more, or with the context's error.
func (p *Pools) Close(ctx context.Context) error { return p.question.Close(ctx) }

// Describe implements prometheus.Collector.
func (p *Pools) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		p.size, p.available, p.used, p.promised, p.ratio, p.inodes, p.inodesFree, p.full, p.condition,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Pools) Collect(to chan<- prometheus.Metric) {
	for _, state := range p.States() {
		p.collect(to, state)
	}
}

// State is the state of a pool, with a forecast.
type State struct {
	backend.Pool
	// FullSeconds is when the pool is full if it grows as in the last 24 hours, +Inf if it
	// does not grow. Forecast is false before enough is known.
	FullSeconds float64
	Forecast    bool
}

// UsedBy returns the used bytes by what uses them.
func (s State) UsedBy() map[string]int64 {
	return map[string]int64{
		"volumes": s.Used.Volumes, "snapshots": s.Used.Snapshots, "partial": s.Used.Partial,
		"trash": s.Used.Trash, "other": s.Used.Other,
	}
}

// States returns what the backend said last; it waits for new figures for a second.
func (p *Pools) States() (states []State) {
	answer := p.question.Get(patience)
	for _, pool := range answer.Value {
		if answer.Waiting > p.silence {
			pool.Conditions = append(slices.Clone(pool.Conditions), backend.HealthProblem{Reason: ConditionUnresponsive})
		}
		state := State{Pool: pool}
		state.FullSeconds, state.Forecast = secondsToFull(p.samples(pool, answer.At), pool.Available)
		states = append(states, state)
	}
	return states
}

// samples notes an answer and returns the use of the pool in the last day.
func (p *Pools) samples(pool backend.Pool, at time.Time) []sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.grown[pool.Name]
	if known == nil {
		known = &growth{}
		p.grown[pool.Name] = known
	}
	if n := len(known.samples); pool.Size > 0 && (n == 0 || at.After(known.samples[n-1].at)) {
		known.add(sample{at, pool.Size - pool.Available})
	}
	return append([]sample(nil), known.samples...)
}

func (p *Pools) collect(to chan<- prometheus.Metric, pool State) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append([]string{metrics.LabelOf(pool.Name)}, labels...)...)
	}
	seen := map[string]bool{}
	for _, problem := range pool.Conditions {
		if !seen[problem.Reason] {
			seen[problem.Reason] = true
			gauge(p.condition, 1, problem.Reason)
		}
	}
	if pool.Size <= 0 {
		return
	}
	gauge(p.size, float64(pool.Size))
	gauge(p.available, float64(pool.Available))
	for kind, bytes := range pool.UsedBy() {
		gauge(p.used, float64(bytes), kind)
	}
	gauge(p.promised, float64(pool.Promised))
	gauge(p.ratio, float64(pool.Promised)/float64(pool.Size))
	if pool.Inodes > 0 {
		gauge(p.inodes, float64(pool.Inodes))
		gauge(p.inodesFree, float64(pool.InodesFree))
	}
	if pool.Forecast {
		gauge(p.full, pool.FullSeconds)
	}
}
