package ec2emu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// Options of a Server. The zero value is a world with the defaults of package world that
// answers at once.
type Options struct {
	World world.Config
	Knobs Knobs
	// Seed determines latencies and faults; the world has another.
	Seed uint64
	// Journal is the number of calls in the journal: 0 means 10,000, a negative number
	// none.
	Journal int
	// Logger gets each call at debug level; nil discards them.
	Logger *slog.Logger
}

// Server is an EC2 endpoint. It is an http.Handler.
type Server struct {
	world   *world.World
	actions map[string]action
	knobs   atomic.Pointer[Knobs]
	// patching is one change of the knobs, from reading to writing them.
	patching sync.Mutex
	dice     *dice
	buckets  buckets
	faults   faults
	journal  *journal
	logger   *slog.Logger
}

const (
	defaultJournal = 10_000
	debug          = slog.LevelDebug
)

// New makes a server and its world. Close ends both.
func New(o Options) (*Server, error) {
	if err := o.Knobs.validate(); err != nil {
		return nil, fmt.Errorf("EC2 emulator: %w", err)
	}
	w, err := world.New(o.World)
	if err != nil {
		return nil, fmt.Errorf("EC2 emulator: %w", err)
	}
	if o.Journal == 0 {
		o.Journal = defaultJournal
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		world: w, actions: actions(), dice: newDice(o.Seed, 0), faults: faults{dice: newDice(o.Seed,
			1)}, journal: newJournal(max(0, o.Journal), w.Now()), logger: o.Logger,
	}
	s.knobs.Store(&o.Knobs)
	return s, nil
}

// World is the state machine of the endpoint.
func (s *Server) World() *world.World { return s.world }

// Close ends the timers of the world, and removes its devices.
func (s *Server) Close() error { return s.world.Close() }

// Knobs returns the current knobs.
func (s *Server) Knobs() Knobs { return *s.knobs.Load() }

// SetKnobs replaces all knobs, for the calls that begin from now on.
func (s *Server) SetKnobs(k Knobs) error {
	if err := k.validate(); err != nil {
		return err
	}
	s.knobs.Store(&k)
	return nil
}

// AddFault adds a fault and returns it with its ID. It replaces a fault with the same ID.
func (s *Server) AddFault(f Fault) (Fault, error) { return s.faults.add(f, s.now()) }

// RemoveFault ends a fault, or all of them for "", and returns how many it ended.
func (s *Server) RemoveFault(id string) int { return s.faults.remove(id) }

// Faults returns the current faults.
func (s *Server) Faults() []Fault { return s.faults.all() }

// Statistics are the counters since the start or the last Reset.
func (s *Server) Statistics() Statistics { return s.journal.statistics() }

// Journal returns the calls in the journal with a number above after, oldest first.
func (s *Server) Journal(after uint64) []Call { return s.journal.calls(after) }

// Reset empties the counters and the journal and fills the buckets.
func (s *Server) Reset() {
	s.journal.reset(s.now())
	s.buckets.fill()
}

func (s *Server) now() time.Time { return s.world.Now() }

func (s *Server) draw(t world.Takes) time.Duration { return s.dice.draw(t) }

// headerTime is how long a client may take to send its request, closeTime how long open
// calls may take at the end.
const (
	headerTime = 5 * time.Second
	closeTime  = time.Second
)

// Serve answers EC2 calls on the listener until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return serve(ctx, listener, s, s.logger)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTime,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("listener %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if server.Shutdown(closing) != nil {
		_ = server.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("listener %s: %w", listener.Addr(), err)
	}
	return nil
}
