package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// instruments have the names of KEP-1432; the two that report staleness are Holdfast's.
type instruments struct {
	probes   *prometheus.CounterVec
	duration prometheus.Histogram
	unwell   *prometheus.GaugeVec
	stale    prometheus.Gauge
	lastGood prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer, driver string) *instruments {
	// Without a registerer the metrics are not exported.
	factory, labels := promauto.With(registerer), prometheus.Labels{"driver_name": driver}
	duration := metrics.NewHistogram(prometheus.HistogramOpts{
		Name: "csi_volume_health_probe_duration_seconds", ConstLabels: labels,
		Help: "Duration of a call for volume health, or of a list with all its pages.",
	})
	if registerer != nil {
		registerer.MustRegister(duration)
	}
	return &instruments{
		duration: duration,
		probes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_volume_health_probe_total", ConstLabels: labels,
			Help: "Calls for volume health to the driver's controller, by result.",
		}, []string{"result"}),
		unwell: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "csi_controller_volume_health_status", Help: "1 for each adverse condition that a claim shows.", ConstLabels: labels,
		}, []string{"namespace", "persistentvolumeclaim", "status", "reason"}),
		stale: factory.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_volume_health_stale_volumes", ConstLabels: labels,
			Help: "Volumes whose health the last poll could not read.",
		}),
		lastGood: factory.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_volume_health_last_success_timestamp_seconds", ConstLabels: labels,
			Help: "When a poll last read the health of all volumes.",
		}),
	}
}

func (m *instruments) probe(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.probes.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

// polled records the conditions of the claims after a poll, and the number of volumes
// whose health it could not read.
func (m *instruments) polled(volumes []bound, stale int) {
	m.unwell.Reset()
	for _, volume := range volumes {
		for _, condition := range conditionsIn(volume.claim) {
			m.unwell.WithLabelValues(volume.claim.Namespace, volume.claim.Name, string(condition.Status), condition.Reason).Set(1)
		}
	}
	m.stale.Set(float64(stale))
	if stale == 0 {
		m.lastGood.SetToCurrentTime()
	}
}
