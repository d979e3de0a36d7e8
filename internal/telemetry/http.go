package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	headerTime = 5 * time.Second // for a client to send its request
	closeTime  = time.Second     // for open requests at the end
)

// NewRegistry holds a process's metrics, with those of the Go runtime and of
// the process itself.
func NewRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// Page serves /metrics and what Handlers has, by path, over HTTP.
type Page struct {
	Address  string // host:port or :port
	Gatherer prometheus.Gatherer
	Handlers map[string]http.Handler
	Logger   *slog.Logger
	TLS      TLS // none serves plain HTTP
	// Listening, when set, is told the address once it is bound; port 0 in
	// Address asks the system for a free one.
	Listening func(net.Addr)
}

// Run serves the page until ctx ends. It fails when the address cannot be bound,
// or the certificate not be read.
func (p Page) Run(ctx context.Context) error {
	server := &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: headerTime,
		ErrorLog: slog.NewLogLogger(p.Logger.Handler(), slog.LevelWarn),
	}
	var err error
	if p.TLS.enabled() {
		if server.TLSConfig, err = p.TLS.config(p.Logger); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", p.Address)
	if err != nil {
		return fmt.Errorf("metrics address: %w", err)
	}
	if p.Listening != nil {
		p.Listening(listener.Addr())
	}
	serve := server.Serve
	if p.TLS.enabled() {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("metrics address: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("metrics address: %w", err)
	}
	return nil
}

func (p Page) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Gatherer, promhttp.HandlerOpts{}))
	for path, handler := range p.Handlers {
		mux.Handle("GET "+path, handler)
	}
	return mux
}
