// Package server serves versions of APIs on named pipes: one gRPC server per pipe. It
// probes each pipe before it makes it, so that several processes can serve the pipes of
// one machine side by side. It implements the parts that all calls share: limits, error
// codes, and the log line without secrets.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Options configure a server.
type Options struct {
	Versions  []api.Definition
	Host      api.Host
	Transport Transport
	// AllowSIDs are accounts that may open the pipes, in addition to SYSTEM and
	// administrators.
	AllowSIDs  []string
	Limits     Limits
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil keeps the metrics to itself
	// NeedsOne makes Run fail when no pipe could be served at the first probe.
	// Otherwise it waits for pipes to become free.
	NeedsOne bool
}

// Server serves pipes.
type Server struct {
	pipes    []*pipe
	needsOne bool
	ready    chan struct{}
	log      *slog.Logger
}

// ErrNothingServed is the error of Run if Options.NeedsOne is set and no pipe could be
// served.
var ErrNothingServed = errors.New("not one pipe can be served")

// New prepares the server; Run makes the pipes.
func New(o Options) (*Server, error) {
	sddl, err := Descriptor(o.AllowSIDs)
	if err != nil {
		return nil, fmt.Errorf("accounts that may open the pipes: %w", err)
	}
	metrics, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{needsOne: o.NeedsOne, ready: make(chan struct{}), log: o.Logger}
	seen := map[string]bool{}
	for _, definition := range o.Versions {
		if err := api.CheckVersion(definition.Version); err != nil {
			return nil, err
		}
		if seen[definition.Pipe()] {
			return nil, fmt.Errorf("two versions are on the pipe %s", definition.Pipe())
		}
		seen[definition.Pipe()] = true
		s.pipes = append(s.pipes, newPipe(definition, o, sddl, metrics))
	}
	if len(s.pipes) == 0 {
		return nil, errors.New("no version to serve")
	}
	return s, nil
}

// Ready is closed once each pipe has been probed.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Pipes returns the state of each pipe.
func (s *Server) Pipes() []Status {
	all := make([]Status, len(s.pipes))
	for i, p := range s.pipes {
		all[i] = p.now()
	}
	return all
}

// Run serves until ctx ends, then waits up to Limits.Drain for the running calls. When it
// returns, this process has no pipe any more.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var probed, serving sync.WaitGroup
	probed.Add(len(s.pipes))
	for _, p := range s.pipes {
		once := sync.OnceFunc(probed.Done)
		serving.Go(func() {
			defer once()
			p.run(ctx, once)
		})
	}
	all := make(chan struct{})
	go func() {
		probed.Wait()
		close(all)
	}()
	select {
	case <-all:
		if s.needsOne && s.count(Served) == 0 {
			cancel(s.nothingServed())
		}
		close(s.ready)
	case <-ctx.Done():
	}
	<-ctx.Done()
	s.stop(&serving)
	if err := context.Cause(ctx); errors.Is(err, ErrNothingServed) {
		return err
	}
	return nil
}

func (s *Server) count(state State) (n int) {
	for _, status := range s.Pipes() {
		if status.State == state {
			n++
		}
	}
	return n
}

// nothingServed returns ErrNothingServed with the error of the first pipe.
func (s *Server) nothingServed() error {
	first := s.Pipes()[0]
	return fmt.Errorf("%w: %d are taken by other processes, %d failed; %s: %w", ErrNothingServed, s.count(Taken),
		s.count(Failed), first.Pipe, first.Error)
}

// stop stops all pipes at the same time, so that no client finds only a part of them.
func (s *Server) stop(serving *sync.WaitGroup) {
	s.log.Info("stopping", "served", s.count(Served))
	serving.Wait() // no pipe accepts connections now
	var stopping sync.WaitGroup
	for _, p := range s.pipes {
		stopping.Go(p.stop)
	}
	stopping.Wait()
}
