package webhook

import (
	"context"
	"log/slog"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics/metricstest"
)

func TestMetricsPage_hasThoseOfTheWebhook(t *testing.T) {
	registry := prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	bound, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Address: "127.0.0.1:0", Registry: registry, Logger: slog.New(slog.DiscardHandler),
			Listening: func(net.Addr) { close(bound) }})
	}()
	<-bound
	metricstest.Check(t, metricstest.Part{Name: "webhook", Page: "../../../docs/reference/metrics.md", Registries: []*prometheus.Registry{registry}})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
