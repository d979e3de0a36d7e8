package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-csi/holdfast/internal/connlimit"
)

const (
	headerTime = 5 * time.Second // for a client to send its request
	idleTime   = 2 * time.Minute // of a connection between two requests
	headerSize = 64 << 10        // bytes of a request's headers
	// streams are the requests at once over a connection of HTTP/2.
	streams   = 64
	closeTime = time.Second // for open requests at the end
)

// Server serves HTTP, or HTTPS, until it is stopped.
type Server struct {
	Address string // host:port or :port
	Handler http.Handler
	Logger  *slog.Logger
	TLS     TLS // none serves plain HTTP
	// Listening, when set, is called with the address once it is bound; port 0 in
	// Address asks the system for a free one.
	Listening func(net.Addr)
}

// Run serves until ctx ends. It fails if the address cannot be bound or the
// certificate cannot be read.
func (s Server) Run(ctx context.Context) error {
	server := &http.Server{
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerSize,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: streams},
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	var err error
	if s.TLS.enabled() {
		if server.TLSConfig, err = s.TLS.config(s.Logger); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.Address)
	if err != nil {
		return err
	}
	if server.Handler = s.Handler; !s.TLS.enabled() { // the name of a certificate cannot be another site's
		server.Handler = withoutRebinding(s.Address, listener.Addr(), s.Handler)
	}
	if s.Listening != nil {
		s.Listening(listener.Addr())
	}
	serve := server.Serve
	if s.TLS.enabled() {
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve(connlimit.New(listener, connlimit.Limits{})) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
