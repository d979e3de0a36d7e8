package telemetry

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

func TestMetricsPage_hasThoseOfEveryProcess(t *testing.T) {
	files := pairIn(t.TempDir())
	issue(t, files, 1)
	registry := metrics.NewRegistry("v0")
	registry.MustRegister(newExpiry(files))
	metricstest.Check(t, metricstest.Part{Name: "process", Page: "../../docs/reference/metrics.md", Registries: []*prometheus.Registry{registry}})
}
