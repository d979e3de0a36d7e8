package health

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics carry the names of KEP-1432, and two of our own that show staleness.
type metrics struct {
	probes   *prometheus.CounterVec
	duration prometheus.Histogram
	unwell   *prometheus.GaugeVec
	stale    prometheus.Gauge
	lastGood prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer, driver string) *metrics {
	// Without a registerer the metrics are kept and shown nowhere.
	factory, labels := promauto.With(registerer), prometheus.Labels{"driver_name": driver}
	return &metrics{
		probes: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_volume_health_probe_total", Help: "Questions for volume health to the driver's controller, by result.", ConstLabels: labels,
		}, []string{"result"}),
		duration: factory.NewHistogram(prometheus.HistogramOpts{
			Name: "csi_volume_health_probe_duration_seconds", Help: "Time that a question for volume health took; of a list, with all its pages.", ConstLabels: labels,
		}),
		unwell: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "csi_controller_volume_health_status", Help: "1 for each adverse condition that a claim shows.", ConstLabels: labels,
		}, []string{"namespace", "persistentvolumeclaim", "status", "reason"}),
		stale: factory.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_volume_health_stale_volumes", Help: "Volumes whose health could not be learnt at the last look.", ConstLabels: labels,
		}),
		lastGood: factory.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_volume_health_last_success_timestamp_seconds", Help: "When the health of all volumes was last learnt.", ConstLabels: labels,
		}),
	}
}

func (m *metrics) probe(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.probes.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

// looked is told what the claims show after a look, and of how many volumes
// nothing was learnt.
func (m *metrics) looked(volumes []bound, stale int) {
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
