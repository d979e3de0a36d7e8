package server

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/grpcserver"
)

const (
	// defaultDrainTime is how long calls in flight may still run after the end was
	// asked for; a CO repeats interrupted calls.
	defaultDrainTime = 10 * time.Second
	// defaultCancelTime is how long calls whose contexts were then cancelled may take to
	// notice: a call stuck in the kernel must not keep the process alive.
	defaultCancelTime = 2 * time.Second
)

func newGRPC(chain *interceptor, tracing trace.TracerProvider) *grpcserver.Server {
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(chain.unary),
		// Otherwise Stop returns while handlers still work on mounts.
		grpc.WaitForHandlers(true),
	}
	if tracing != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(tracing), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	return grpcserver.New(grpcserver.Limits{}, options...)
}

// Ready is closed once the socket serves.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends, then gives calls in flight up to 10 s, cancels
// the rest and returns nil. The socket's file is removed unless it belongs to
// another process by then. A Server runs once.
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.endpoint.listen(ctx)
	if err != nil {
		return fmt.Errorf("CSI endpoint: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(listener) }()
	if s.endpoint.Path == "" {
		s.log.Warn("CSI is served without protection: every process of this machine can call it; this is for tests",
			"endpoint", s.endpoint.String())
	}
	s.log.Info("serving CSI", "endpoint", s.endpoint.String())
	close(s.ready)
	select {
	case err := <-served:
		_ = listener.Close()
		return fmt.Errorf("serve CSI on %s: %w", s.endpoint, err)
	case <-ctx.Done():
	}
	if !s.drain() {
		return nil
	}
	if err := <-served; err != nil {
		return fmt.Errorf("serve CSI on %s: %w", s.endpoint, err)
	}
	return nil
}

// Probe reports whether the driver can do its work now.
func (s *Server) Probe(ctx context.Context) error { return s.identity.probe(ctx) }

// drain ends the calls in flight, in peace or else by force. It is false when
// one does not end at all.
func (s *Server) drain() bool {
	s.log.Info("draining calls in flight", "at_most", s.drainTime.String())
	if finishes(s.grpc.GracefulStop, s.drainTime) {
		return true
	}
	s.log.Warn("calls in flight are cancelled")
	if finishes(s.grpc.Stop, s.cancelTime) {
		return true
	}
	s.log.Error("a call does not end even now; leaving it behind")
	return false
}

func finishes(stop func(), within time.Duration) bool {
	done := make(chan struct{})
	go func() { defer close(done); stop() }()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
