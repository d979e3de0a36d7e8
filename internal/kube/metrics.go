package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// CallMetrics measures the calls to the driver in the metric of the sidecars
// (csi-lib-utils, metrics), so that their alerts keep working. The result is for
// csiclient.Options.Observe.
func CallMetrics(registerer prometheus.Registerer, driver string) func(method, code string, took time.Duration) {
	seconds := metrics.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_sidecar_operations_seconds",
		Help:    "Duration of a call to the CSI driver, in seconds.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, "driver_name", "method_name", "grpc_status_code")
	registerer.MustRegister(seconds)
	return func(method, code string, took time.Duration) {
		seconds.WithLabelValues(driver, method, code).Observe(took.Seconds())
	}
}
