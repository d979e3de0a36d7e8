package kube

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CallMetrics measures the driver's calls under the name that alerts on the
// sidecars know (csi-lib-utils, metrics). What it returns is for
// csiclient.Options.Observe.
func CallMetrics(registerer prometheus.Registerer, driver string) func(method, code string, took time.Duration) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "csi_sidecar_operations_seconds",
		Help:    "Seconds that a call of the CSI driver took.",
		Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
	}, []string{"driver_name", "method_name", "grpc_status_code"})
	registerer.MustRegister(seconds)
	return func(method, code string, took time.Duration) {
		seconds.WithLabelValues(driver, method, code).Observe(took.Seconds())
	}
}
