// Package register is the plugin side of the kubelet's plugin registration. It
// serves pluginregistration.Registration on a socket in the kubelet's registry
// directory, in the driver's process or in a process next to it. The watcher of
// the directory (a kubelet, or Holdfast's host) learns from it the path of the CSI
// socket. The package does not use CSI itself. It serves until its context ends:
// a restarted kubelet calls again, and a refusal is reported, not fatal.
//
// After failures the kubelet backs off for up to 2 min 2 s, and it keeps the
// backoff by the socket's path (k/k pkg/util/goroutinemap). It dials a file that
// survived a reboot from its start on, in vain. A driver that starts minutes later
// faces a long backoff, which neither a new socket at that path nor a new event
// ends. So if the kubelet makes no call, the socket moves to a new name. It does
// not move while the driver is registered, nor while the kubelet processes it.
//
// Several names have a risk: the kubelet processes each path by itself but
// deregisters by the driver's name (k/k pkg/volume/csi, DeRegisterPlugin), so that
// the removal of one path could undo the registration of another. So a move waits
// between the removal of a socket and the creation of the next.
package register

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

const (
	// version is the registration version that kubelets expect of a CSI plugin. It
	// is not the version of CSI: the kubelet requires that the highest has major 1.
	version = "1.0.0"
	// defaultCheck is the interval of the checks of the socket file. A watch on the
	// directory would be lost with the directory; a check costs microseconds.
	defaultCheck = time.Second
	// defaultSilence is the time without a call of the kubelet after which the socket
	// moves first: the kubelet's watcher polls once a second, and it retries after
	// 0.5, 1, 2, 4 and 8 s. The time doubles at each move, until the kubelet's own
	// backoff is shorter.
	defaultSilence = 10 * time.Second
	longestSilence = 160 * time.Second
	// resultTimeout is how long the kubelet may take from GetInfo to
	// NotifyRegistrationStatus: 2 min for NodeGetInfo, and the API server's time.
	resultTimeout = 3 * time.Minute
	// defaultMoveDelay is the time without a socket during a move, and after the
	// removal of a dead process's socket. The kubelet polls once a second and then
	// removes the driver from the CSINode.
	defaultMoveDelay = 3 * time.Second
)

// Options of a registration.
type Options struct {
	// Directory is the kubelet's registry, such as /var/lib/kubelet/plugins_registry.
	Directory string
	// Driver is the CSI plugin name.
	Driver string
	// Endpoint is the path of the CSI socket as the kubelet sees it. It must
	// serve before Run is called: the kubelet calls NodeGetInfo at once.
	Endpoint string
	Logger   *slog.Logger
	// Check is the interval of the checks of the socket file; 0 means 1 s.
	Check time.Duration
	// RegisteredCheck, if set, is that interval while the driver is registered. The
	// directory is watched then, so that the removal of the file is seen at once.
	RegisteredCheck time.Duration
	// Silence is the time without a call of the kubelet before the socket moves for
	// the first time; 0 means 10 s.
	Silence time.Duration
	// MoveDelay is the time between the removal of a socket and the creation of the
	// next; 0 means 3 s.
	MoveDelay time.Duration
}

// Server registers one driver.
type Server struct {
	options Options
	path    string // of the socket before the first move
	status  record
}

// New prepares a registration. It touches no file before Run.
func New(o Options) (*Server, error) {
	path, err := unixsocket.Path(filepath.Join(o.Directory, o.Driver+suffix))
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	o.Endpoint = endpointOn(runtime.GOOS, o.Endpoint)
	o.Check = positive(o.Check, defaultCheck)
	o.Silence, o.MoveDelay = positive(o.Silence, defaultSilence), positive(o.MoveDelay, defaultMoveDelay)
	o.Logger = o.Logger.With("component", "registration", "driver", o.Driver)
	return &Server{options: o, path: path}, nil
}

// endpointOn returns the path of the CSI socket in the spelling of the system's
// kubelet: the kubelet on Windows compares it with its own spelling.
func endpointOn(system, endpoint string) string {
	if system == "windows" {
		return paths.Normalize(endpoint)
	}
	return endpoint
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// Run serves the registration socket until ctx ends. It then removes the file,
// unless the file belongs to another process. If the socket cannot be bound, Run
// retries and Status reports the error: volumes in use need the process.
func (s *Server) Run(ctx context.Context) error {
	socket := &socket{options: s.options, usual: s.path, path: s.path, status: &s.status}
	defer socket.close()
	changes, stop := s.watch()
	defer stop()
	for silence := s.options.Silence; ; {
		socket.keep(ctx)
		registered := s.Status().Registered
		switch {
		case registered:
			silence = s.options.Silence
		case socket.bound() && s.status.silentFor(silence):
			silence = min(2*silence, max(longestSilence, s.options.Silence))
			socket.move(ctx)
		}
		pause := s.options.Check
		if registered && socket.bound() && changes != nil {
			pause = s.options.RegisteredCheck
		}
		if !sleep(ctx, pause, changes) {
			return nil
		}
	}
}

// watch returns the changes in the directory if RegisteredCheck is set. Without a
// watch, or after the directory was replaced, only the periodic checks remain.
func (s *Server) watch() (<-chan fsnotify.Event, func()) {
	none := func() {}
	if s.options.RegisteredCheck <= 0 {
		return nil, none
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, none
	}
	stop := func() { _ = watcher.Close() }
	if watcher.Add(s.options.Directory) != nil {
		stop()
		return nil, none
	}
	return watcher.Events, stop
}

// sleep waits for the pause or a change. It returns false when the context ended.
func sleep(ctx context.Context, pause time.Duration, changes <-chan fsnotify.Event) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-changes:
	}
	return true
}
