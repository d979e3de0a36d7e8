// Package server puts versions of APIs on named pipes: one gRPC server per pipe,
// each looked for before it is made, so that several processes can serve the
// pipes of one machine side by side. It owns what is the same for every call:
// limits, error codes, the log line, and that no secret is in it.
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

// Options are what a server needs.
type Options struct {
	Versions  []api.Definition
	Host      api.Host
	Transport Transport
	// AllowSIDs may open the pipes, in addition to SYSTEM and administrators.
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

// ErrNothingServed is Run's when Options.NeedsOne is set.
var ErrNothingServed = errors.New("not one pipe can be served")

// New prepares the server; Run makes the pipes.
func New(o Options) (*Server, error) {
	sddl, err := Descriptor(o.AllowSIDs)
	if err != nil {
		return nil, fmt.Errorf("who may open the pipes: %w", err)
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

// Run serves until ctx ends, and then lets calls in flight end for a while. When
// it returns, no pipe of this process is left.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var looked, serving sync.WaitGroup
	looked.Add(len(s.pipes))
	for _, p := range s.pipes {
		once := sync.OnceFunc(looked.Done)
		serving.Go(func() {
			defer once()
			p.run(ctx, once)
		})
	}
	all := make(chan struct{})
	go func() {
		looked.Wait()
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

// nothingServed says why, by the first pipe.
func (s *Server) nothingServed() error {
	first := s.Pipes()[0]
	return fmt.Errorf("%w: %d are taken by other processes, %d failed; %s: %w", ErrNothingServed, s.count(Taken),
		s.count(Failed), first.Pipe, first.Error)
}

// stop ends all pipes at once: no client finds one half of the set.
func (s *Server) stop(serving *sync.WaitGroup) {
	s.log.Info("stopping", "served", s.count(Served))
	serving.Wait() // nothing accepts now
	var stopping sync.WaitGroup
	for _, p := range s.pipes {
		stopping.Go(p.stop)
	}
	stopping.Wait()
}
