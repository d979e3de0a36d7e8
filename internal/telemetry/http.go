package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/metrics"
)

// Page serves /metrics and the Handlers by path, over HTTP or HTTPS.
type Page struct {
	Address  string // host:port or :port
	Gatherer prometheus.Gatherer
	Handlers map[string]http.Handler
	Logger   *slog.Logger
	TLS      TLS // none serves plain HTTP
	// Listening, when set, is called with the address once it is bound; port 0 in
	// Address asks the system for a free one.
	Listening func(net.Addr)
}

// Run serves the page until ctx ends. It fails if the address cannot be bound or
// the certificate cannot be read.
func (p Page) Run(ctx context.Context) error {
	err := Server{Address: p.Address, Handler: p.handler(), Logger: p.Logger, TLS: p.TLS, Listening: p.Listening}.Run(ctx)
	if err != nil {
		return fmt.Errorf("metrics address: %w", err)
	}
	return nil
}

func (p Page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", MetricsHandler(p.Gatherer, p.TLS))
	for path, handler := range p.Handlers {
		mux.Handle("GET "+path, handler)
	}
	return mux
}

// MetricsHandler serves the metrics, and with a certificate also when that expires.
func MetricsHandler(gatherer prometheus.Gatherer, tls TLS) http.Handler {
	if !tls.enabled() {
		return metrics.Handler(gatherer)
	}
	own := prometheus.NewRegistry()
	own.MustRegister(newExpiry(tls))
	return metrics.Handler(prometheus.Gatherers{gatherer, own})
}
