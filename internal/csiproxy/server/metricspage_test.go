package server

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

func TestMetricsPage_hasThoseOfThePipes(t *testing.T) {
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	metricstest.Check(t, metricstest.Part{
		Name: "csi-proxy", Page: "../../../docs/reference/metrics.md", Registries: []*prometheus.Registry{registry}, Histograms: []string{"csi_proxy_call_seconds"},
	})
}
