package work

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// metrics are those of client-go's own queues, under the names that
// Kubernetes' dashboards use (k8s.io/component-base/metrics/prometheus/workqueue).
type metrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

// newMetrics registers the metrics, or finds those of an earlier queue.
func newMetrics(registerer prometheus.Registerer) *metrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return register(registerer, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_" + name, Help: help}, []string{"name"}))
	}
	counter := func(name, help string) *prometheus.CounterVec {
		return register(registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "workqueue_" + name, Help: help}, []string{"name"}))
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return register(registerer, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workqueue_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10),
		}, []string{"name"}))
	}
	return &metrics{
		depth:      gauge("depth", "Keys that wait for a worker."),
		unfinished: gauge("unfinished_work_seconds", "Seconds of work in progress, summed over the workers."),
		longest:    gauge("longest_running_processor_seconds", "Seconds that the longest work in progress has taken so far."),
		adds:       counter("adds_total", "Keys that were added."),
		retries:    counter("retries_total", "Keys that were added again after a failure."),
		latency:    histogram("queue_duration_seconds", "Seconds that a key waited."),
		duration:   histogram("work_duration_seconds", "Seconds that the work on a key took."),
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

func (m *metrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

func (m *metrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

func (m *metrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

func (m *metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}

func (m *metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

func (m *metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

func (m *metrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
