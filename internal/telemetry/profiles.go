package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
)

// Profiles serves /debug/pprof, over HTTP, on a loopback address: profiles need no
// credentials, and a trace slows the process down.
type Profiles struct {
	Address   string // host:port; the host is 127.0.0.1, ::1 or localhost
	Logger    *slog.Logger
	Listening func(net.Addr) // see Server
}

// Check returns an error if the address is not a loopback address with a port.
func (p Profiles) Check() error {
	_, err := p.loopback()
	return err
}

// loopback returns the address without names: a resolver could make localhost any address.
func (p Profiles) loopback() (string, error) {
	host, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return "", fmt.Errorf("%q is not an address with a port, such as 127.0.0.1:6060: %w", p.Address, err)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return "", fmt.Errorf("%q is not a loopback address; profiles have no access control: use 127.0.0.1:%s, and kubectl port-forward",
			p.Address, port)
	}
	return net.JoinHostPort(host, port), nil
}

// Run serves until ctx ends. It fails if the address is not a loopback address or
// cannot be bound.
func (p Profiles) Run(ctx context.Context) error {
	address, err := p.loopback()
	if err == nil {
		err = Server{Address: address, Handler: p.handler(), Logger: p.Logger, Listening: p.Listening}.Run(ctx)
	}
	if err != nil {
		return fmt.Errorf("pprof address: %w", err)
	}
	return nil
}

// handler has the pages that net/http/pprof also adds to the default mux, which no server
// of Holdfast uses.
func (p Profiles) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
