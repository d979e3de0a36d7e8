package metrics

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reasons of operations that no driver's answer explains. All others are names of gRPC codes.
const (
	// ReasonRunning: a worker is on it, and nothing has failed.
	ReasonRunning = "running"
	// ReasonWaiting: it waits for a worker or for a condition, and nothing has failed.
	ReasonWaiting = "waiting"
	// ReasonQuarantined: it is unknown whether its volume exists. A person must decide.
	ReasonQuarantined = "quarantined"
	// ReasonKubernetes: the API server has rejected a request.
	ReasonKubernetes = "kubernetes"
	// ReasonOther: its last attempt failed for another reason, as a missing class.
	ReasonOther = "other"
)

// Operation is one that has begun and has not ended.
type Operation struct {
	Kind   string // one of Kinds, and of those that were given to Watch
	Reason string // the gRPC code of the last failure, or one of the reasons above
	Since  time.Time
	// Driver is the operation's own; "" for the only one of Watch.
	Driver string
}

// View calls report for each unfinished operation. It is called at each scrape, so it must
// not block.
type View func(report func(Operation))

// Operations exports how many operations of a process are unfinished, and the age of the
// oldest, by kind and reason. One collector has those of all parts of a process, which see
// different kinds.
type Operations struct {
	count, oldest *prometheus.Desc

	mu      sync.Mutex
	watched map[*watched]struct{}
}

type watched struct {
	drivers func() []string
	kinds   []string
	view    View
}

// OperationsOf returns the Operations of a registerer, which has one.
func OperationsOf(registerer prometheus.Registerer) (*Operations, error) {
	labels := []string{"driver_name", "kind", "reason"}
	made := &Operations{
		count: prometheus.NewDesc("holdfast_operations",
			"Operations that have begun and have not ended, by the gRPC code of the last failure.", labels, nil),
		oldest: prometheus.NewDesc("holdfast_operation_oldest_seconds",
			"Age of the oldest of those operations.", labels, nil),
		watched: map[*watched]struct{}{},
	}
	err := registerer.Register(made)
	var exists prometheus.AlreadyRegisteredError
	if errors.As(err, &exists) {
		if known, ok := exists.ExistingCollector.(*Operations); ok {
			return known, nil
		}
	}
	return made, err
}

// Watch adds the operations of one part of the process for a driver, until stop. The kinds
// are those that the view may report; without operations they are zero.
func (o *Operations) Watch(driver string, kinds []string, view View) (stop func()) {
	return o.WatchDrivers(func() []string { return []string{driver} }, kinds, view)
}

// WatchDrivers is Watch for the drivers of the moment. Operations name their own.
func (o *Operations) WatchDrivers(drivers func() []string, kinds []string, view View) (stop func()) {
	added := &watched{drivers, kinds, view}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watched[added] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.watched, added)
	}
}

// Describe implements prometheus.Collector.
func (o *Operations) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- o.count
	descriptions <- o.oldest
}

// series are the labels of one.
type series struct{ driver, kind, reason string }

// state is the value of one.
type state struct {
	count int
	age   time.Duration
}

// Collect implements prometheus.Collector.
func (o *Operations) Collect(to chan<- prometheus.Metric) {
	for s, value := range o.states(time.Now()) {
		to <- prometheus.MustNewConstMetric(o.count, prometheus.GaugeValue, float64(value.count), s.driver, s.kind, s.reason)
		to <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, value.age.Seconds(), s.driver, s.kind, s.reason)
	}
}

func (o *Operations) states(now time.Time) map[series]state {
	found := map[series]state{}
	for _, w := range o.all() {
		drivers, only := w.drivers(), ""
		if len(drivers) == 1 {
			only = drivers[0]
		}
		for _, driver := range drivers {
			for _, kind := range w.kinds {
				if s := (series{driver, kind, ReasonRunning}); found[s].count == 0 {
					found[s] = state{}
				}
			}
		}
		w.view(func(operation Operation) {
			s := series{cmp.Or(operation.Driver, only), operation.Kind, operation.Reason}
			known := found[s]
			found[s] = state{known.count + 1, max(known.age, now.Sub(operation.Since))}
		})
	}
	return found
}

func (o *Operations) all() []*watched {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]*watched, 0, len(o.watched))
	for w := range o.watched {
		all = append(all, w)
	}
	return all
}
