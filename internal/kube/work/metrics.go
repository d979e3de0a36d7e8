package work

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// instruments are those of client-go's own queues, under the names that
// Kubernetes' dashboards use (k8s.io/component-base/metrics/prometheus/workqueue).
type instruments struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
	ages                       *ages
}

// newMetrics registers the metrics, or finds those of an earlier queue.
func newMetrics(registerer prometheus.Registerer) *instruments {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, []string{"name"}))
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, []string{"name"}))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return register(registerer, metrics.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10),
		}, "name"))
	}
	return &instruments{
		depth:      gauge("depth", "Keys that wait for a worker."),
		unfinished: gauge("unfinished_work_seconds", "Seconds of work in progress, summed over the workers."),
		longest:    gauge("longest_running_processor_seconds", "Seconds that the longest work in progress has taken so far."),
		adds:       counter("adds_total", "Keys that were added."),
		retries:    counter("retries_total", "Keys that were added again after a failure."),
		latency:    histogram("queue_duration_seconds", "Seconds that a key waited."),
		duration:   histogram("work_duration_seconds", "Seconds that the work on a key took."),
		ages:       register(registerer, newAges()),
	}
}

// register tolerates metrics that are registered already: the queues of a process share
// their metrics and differ by the label.
func register[C prometheus.Collector](registerer prometheus.Registerer, collector C) C {
	var exists prometheus.AlreadyRegisteredError
	if err := registerer.Register(collector); errors.As(err, &exists) {
		if known, ok := exists.ExistingCollector.(C); ok {
			return known
		}
	}
	return collector
}

func (m *instruments) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *instruments) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *instruments) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

func (m *instruments) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}

func (m *instruments) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *instruments) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *instruments) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}

// ages exports the ages of the queues' oldest waiting keys, which client-go's metrics lack: a
// histogram has a key that never gets a worker at no time.
type ages struct {
	age *prometheus.Desc

	mu     sync.Mutex
	queues map[string]*Queue // of a name, the last one
}

func newAges() *ages {
	return &ages{
		age: prometheus.NewDesc("holdfast_workqueue_oldest_seconds",
			"Time that the key waits for a worker which has waited for the longest time; 0 if none waits.", []string{"name"}, nil),
		queues: map[string]*Queue{},
	}
}

func (a *ages) add(name string, queue *Queue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queues[name] = queue
}

// Describe implements prometheus.Collector.
func (a *ages) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- a.age }

// Collect implements prometheus.Collector.
func (a *ages) Collect(to chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, queue := range a.queues {
		age := time.Duration(0)
		if since, ok := queue.fair.oldest(); ok {
			age = time.Since(since)
		}
		to <- prometheus.MustNewConstMetric(a.age, prometheus.GaugeValue, age.Seconds(), name)
	}
}
