package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// State is the state of a pipe.
type State string

// The states of a pipe.
const (
	Unknown State = ""        // not probed yet
	Served  State = "served"  // by this process
	Taken   State = "taken"   // another process serves it
	Failed  State = "failed"  // it could not be made, or broke; see Status.Error
	Stopped State = "stopped" // this process has stopped
)

// Status is a pipe's state.
type Status struct {
	Pipe  string
	State State
	// Owner is the process that serves a taken pipe, if it is known.
	Owner Process
	// Error is why the pipe is not served.
	Error error
}

// pipe is one version of one API on its pipe. It is probed and served; if that fails, it
// is probed again, until the server stops.
type pipe struct {
	name        string
	sddl        string
	transport   Transport
	limits      Limits
	log         *slog.Logger
	metrics     *callMetrics
	grpc        *grpc.Server
	connections *connections

	mu     sync.Mutex
	status Status
}

func newPipe(definition api.Definition, o Options, sddl string, metrics *callMetrics) *pipe {
	name := definition.Pipe()
	p := &pipe{
		name: name, sddl: sddl, transport: o.Transport, limits: o.Limits, log: o.Logger, metrics: metrics,
		connections: newConnections(o.Limits, o.Transport.Client),
		status:      Status{Pipe: name},
	}
	calls := newCalls(name, o.Limits, o.Logger, metrics)
	var services []string
	p.grpc = grpc.NewServer(
		grpc.Creds(identity{o.Transport}),
		grpc.UnaryInterceptor(calls.unary),
		grpc.UnknownServiceHandler(func(s any, stream grpc.ServerStream) error { return calls.unknown(services)(s, stream) }),
		grpc.MaxRecvMsgSize(o.Limits.Message),
		grpc.MaxHeaderListSize(8<<10),
		grpc.MaxConcurrentStreams(streams),
		grpc.ConnectionTimeout(o.Limits.Preface),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// Messages are small, and idle connections many.
		grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10),
	)
	definition.Register(p.grpc, o.Host)
	for service := range p.grpc.GetServiceInfo() {
		services = append(services, service)
	}
	return p
}

// run serves the pipe until ctx ends; then it no longer accepts, and the caller must call
// stop. It calls probed after the first probe.
func (p *pipe) run(ctx context.Context, probed func()) {
	failures := 0
	for ctx.Err() == nil {
		served, err := p.serveOnce(ctx, probed)
		if ctx.Err() != nil {
			return
		}
		if served {
			failures = 0
		}
		failures++
		p.report(err)
		probed()
		select {
		case <-ctx.Done():
		case <-time.After(p.limits.retry(failures)):
		}
	}
}

// serveOnce makes the pipe if no process has it, and serves until the pipe breaks or
// ctx ends.
func (p *pipe) serveOnce(ctx context.Context, probed func()) (served bool, err error) {
	inner, err := p.listen(ctx)
	if err != nil {
		return false, err
	}
	listener := p.connections.listen(ctx, inner)
	end := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer end()
	p.enter(Status{Pipe: p.name, State: Served})
	probed()
	err = p.grpc.Serve(listener) // which closes the listener
	return true, fmt.Errorf("the pipe broke: %w", err)
}

// takenError is ErrTaken with the owner of the pipe.
type takenError struct{ owner Process }

func (e *takenError) Error() string { return fmt.Sprintf("%v: %v", ErrTaken, e.owner) }

// Unwrap makes it ErrTaken.
func (e *takenError) Unwrap() error { return ErrTaken }

// listen probes first (KEP: "probe first, then serve").
func (p *pipe) listen(ctx context.Context) (inner net.Listener, err error) {
	owner, err := p.transport.Probe(ctx, p.name)
	if err != nil {
		return nil, fmt.Errorf("probe whether the pipe exists: %w", err)
	}
	if owner != nil {
		return nil, &takenError{*owner}
	}
	inner, err = p.transport.Listen(ctx, p.name, p.sddl)
	if errors.Is(err, ErrTaken) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("make the pipe: %w", err)
	}
	return inner, nil
}

// report records the reason why the pipe is not served.
func (p *pipe) report(err error) {
	now := Status{Pipe: p.name, State: Failed, Error: err}
	if errors.Is(err, ErrTaken) {
		now.State = Taken
		if taken, ok := errors.AsType[*takenError](err); ok {
			now.Owner = taken.owner
		}
	}
	p.enter(now)
}

// enter changes the state and logs the change, once. A pipe of another process is logged
// as an error: that process could pose as the proxy.
func (p *pipe) enter(now Status) {
	p.mu.Lock()
	before := p.status
	p.status = now
	p.mu.Unlock()
	p.metrics.pipe(p.name, now.State)
	if before.State == now.State && before.Owner == now.Owner && text(before.Error) == text(now.Error) {
		return
	}
	switch now.State {
	case Served:
		p.log.Info("pipe is served", "pipe", p.name)
	case Taken:
		p.log.Error("another process serves this pipe, and may pose as csi-proxy; end that process unless it is a proxy "+
			"that you run. This process tries again", "pipe", p.name,
			"pid", now.Owner.ID, "program", now.Owner.Program, "user", now.Owner.User)
	case Failed:
		p.log.Error("pipe is not served; csi-proxy tries again", "pipe", p.name, "error", now.Error)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (p *pipe) now() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// stop accepts no more calls, waits a limited time for the calls in flight, and then
// cancels them.
func (p *pipe) stop() {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		p.grpc.GracefulStop()
	}()
	p.connections.end(false)
	select {
	case <-drained:
	case <-time.After(p.limits.Drain):
		p.log.Warn("calls that did not end in time are cancelled", "pipe", p.name, "limit", p.limits.Drain)
		p.connections.end(true)
		p.grpc.Stop()
		<-drained
	}
	p.connections.end(true)
	p.enter(Status{Pipe: p.name, State: Stopped})
}
