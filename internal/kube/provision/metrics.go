package provision

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// instruments are those of the provisioners' library, by the same names, and some
// of our own.
type instruments struct {
	provisioned, provisionFailed *prometheus.CounterVec
	provisionTime                *prometheus.HistogramVec
	deleted, deleteFailed        *prometheus.CounterVec
	deleteTime                   *prometheus.HistogramVec
}

func gauge(name, help string, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "holdfast_" + name, Help: help}, func() float64 { return float64(value()) })
}

func newMetrics(registerer prometheus.Registerer, intents, quarantined func() int) *instruments {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "controller_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return metrics.NewHistogramVec(prometheus.HistogramOpts{Name: "controller_" + name, Help: help, Buckets: prometheus.DefBuckets}, labels...)
	}
	m := &instruments{
		provisioned:     counter("persistentvolumeclaim_provision_total", "Volumes provisioned.", "class", "source"),
		provisionFailed: counter("persistentvolumeclaim_provision_failed_total", "Failed attempts to provision a volume.", "class", "source"),
		provisionTime:   histogram("persistentvolumeclaim_provision_duration_seconds", "Time of an attempt to provision a volume.", "class", "source"),
		deleted:         counter("persistentvolume_delete_total", "Volumes deleted.", "class"),
		deleteFailed:    counter("persistentvolume_delete_failed_total", "Failed attempts to delete a volume.", "class"),
		deleteTime:      histogram("persistentvolume_delete_duration_seconds", "Time of an attempt to delete a volume.", "class"),
	}
	if registerer != nil {
		registerer.MustRegister(m.provisioned, m.provisionFailed, m.provisionTime, m.deleted, m.deleteFailed, m.deleteTime,
			gauge("provision_intents", "Volumes that are being created.", intents),
			gauge("provision_quarantined_intents", "Volumes of which it is unknown whether they exist. A person must inspect the storage.", quarantined))
	}
	return m
}

func (m *instruments) provision(class, source string, began time.Time, err error) {
	m.provisionTime.WithLabelValues(class, source).Observe(time.Since(began).Seconds())
	if err != nil {
		m.provisionFailed.WithLabelValues(class, source).Inc()
		return
	}
	m.provisioned.WithLabelValues(class, source).Inc()
}

func (m *instruments) deletion(class string, began time.Time, err error) {
	m.deleteTime.WithLabelValues(class).Observe(time.Since(began).Seconds())
	if err != nil {
		m.deleteFailed.WithLabelValues(class).Inc()
		return
	}
	m.deleted.WithLabelValues(class).Inc()
}
