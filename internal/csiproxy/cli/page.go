package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headerTime = 5 * time.Second // for a client to send its request
	closeTime  = time.Second     // for open requests at the end
)

// site is an address that answers HTTP.
type site struct {
	name     string // for errors
	listener net.Listener
	server   *http.Server
}

// openAll binds the addresses of pages, so that a taken address is an error before any
// pipe is served.
func openAll(ctx context.Context, pages []Page, log *slog.Logger) ([]*site, error) {
	sites := make([]*site, 0, len(pages))
	for _, page := range pages {
		s, err := page.open(ctx, log)
		if err != nil {
			return nil, err
		}
		sites = append(sites, s)
	}
	return sites, nil
}

func (p Page) open(ctx context.Context, log *slog.Logger) (*site, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", p.Address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Flag, err)
	}
	mux := http.NewServeMux()
	for pattern, handler := range p.Handlers {
		mux.Handle(pattern, handler)
	}
	return &site{name: p.Flag, listener: listener, server: &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTime, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}, nil
}

// run answers until ctx ends.
func (s *site) run(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- s.server.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("%s: %w", s.name, err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := s.server.Shutdown(closing); err != nil {
		_ = s.server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}
