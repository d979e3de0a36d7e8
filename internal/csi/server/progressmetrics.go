package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

// progressMetrics show how far long operations are, as sums: volumes are not a label.
type progressMetrics struct {
	tracker              *progress.Tracker
	running, done, total *prometheus.Desc
}

func newProgressMetrics(tracker *progress.Tracker) *progressMetrics {
	labels := []string{"doing"}
	return &progressMetrics{
		tracker: tracker,
		running: prometheus.NewDesc("holdfast_progress_operations",
			"Operations that run and report their progress, by what is done (copying, uploading, modifying …).", labels, nil),
		done: prometheus.NewDesc("holdfast_progress_done_bytes",
			"Bytes that running operations have done, by what is done (copying, reading …).", labels, nil),
		total: prometheus.NewDesc("holdfast_progress_total_bytes",
			"Bytes that running operations have to do in all, by what is done.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (p *progressMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- p.running
	out <- p.done
	out <- p.total
}

// Collect implements prometheus.Collector.
func (p *progressMetrics) Collect(out chan<- prometheus.Metric) {
	running, done, total := map[string]int{}, map[string]int64{}, map[string]int64{}
	for _, one := range p.tracker.List() {
		running[one.Doing]++
		if one.Unit == progress.Bytes && one.Total > 0 {
			done[one.Doing] += one.Done
			total[one.Doing] += one.Total
		}
	}
	for doing, count := range running {
		out <- prometheus.MustNewConstMetric(p.running, prometheus.GaugeValue, float64(count), doing)
	}
	for doing := range total {
		out <- prometheus.MustNewConstMetric(p.done, prometheus.GaugeValue, float64(done[doing]), doing)
		out <- prometheus.MustNewConstMetric(p.total, prometheus.GaugeValue, float64(total[doing]), doing)
	}
}
