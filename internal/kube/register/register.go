// Package register is the plugin side of the kubelet's plugin registration: it
// serves pluginregistration.Registration on a socket in the kubelet's registry
// directory, in the driver's own process or beside it. Whoever watches the
// directory (a kubelet, or Holdfast's host) learns from it where the CSI socket
// is. It knows nothing of CSI itself, and it never gives up: a restarted kubelet
// asks again, and a refusal is shown and not died of.
//
// The kubelet pauses up to 2 min 2 s after failures, and the pause belongs to
// the socket's path: a file that survived a reboot is dialled in vain from the
// kubelet's start on, so that a driver which starts minutes later finds the pause
// grown, and neither a new socket at that path nor a new event ends it (k/k
// pkg/util/goroutinemap, keyed by path). So when the kubelet stays silent the
// socket moves to a name that it has never seen. It does not move while it is
// registered, nor while the kubelet is at work on it.
//
// The price of several names is paid with care: the kubelet works on each path
// apart but deregisters by the driver's name (k/k pkg/volume/csi,
// DeRegisterPlugin), so that the end of one path could undo the registration of
// another. Between the end of one and the beginning of the next it is given time.
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
	// version is what kubelets expect of a CSI plugin. It is the version of the
	// registration, not that of CSI: the highest must have major 1.
	version = "1.0.0"
	// defaultCheck is how often the own socket file is looked at. A watch on the
	// directory would be lost with the directory; a look costs microseconds.
	defaultCheck = time.Second
	// defaultPatience is how long a kubelet may be silent before the socket moves
	// for the first time: it looks once a second, and tries again after 0.5, 1, 2,
	// 4 and 8 s. Each time the patience doubles, until the kubelet's own pauses
	// are shorter.
	defaultPatience = 10 * time.Second
	longestPatience = 160 * time.Second
	// verdictTime is how long the kubelet may take from its question to its
	// verdict: NodeGetInfo has 2 min, and the API server comes on top.
	verdictTime = 3 * time.Minute
	// defaultSettle is how long there is no socket while it moves, and after one
	// of a dead process was removed: the kubelet looks once a second, and takes the
	// driver off the CSINode then.
	defaultSettle = 3 * time.Second
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
	// Check is how often the socket file is looked at; 0 means once a second.
	Check time.Duration
	// Calm, if given, is how often it is looked at while the driver is registered.
	// The directory is watched then, so that a file that is removed is seen at once.
	Calm time.Duration
	// Patience is how long a silent kubelet is waited for before the socket
	// moves, at first; 0 means 10 s. Settle is how long a move takes; 0 means 3 s.
	Patience, Settle time.Duration
}

// Server registers one driver.
type Server struct {
	options Options
	path    string // the usual one
	status  record
}

// New prepares a registration; nothing is touched before Run.
func New(o Options) (*Server, error) {
	path, err := unixsocket.Path(filepath.Join(o.Directory, o.Driver+suffix))
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	o.Endpoint = endpointOn(runtime.GOOS, o.Endpoint)
	o.Check, o.Patience, o.Settle = positive(o.Check, defaultCheck), positive(o.Patience, defaultPatience), positive(o.Settle, defaultSettle)
	o.Logger = o.Logger.With("component", "registration", "driver", o.Driver)
	return &Server{options: o, path: path}, nil
}

// endpointOn is the CSI socket as a kubelet of the system spells paths: the one on
// Windows compares what it is told with what it knows.
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

// Run serves the registration socket until ctx ends, and removes its file then
// unless somebody else has taken the name. A socket that cannot be bound is
// tried again and shown by Status: the volumes that are in use need the process.
func (s *Server) Run(ctx context.Context) error {
	socket := &socket{options: s.options, usual: s.path, path: s.path, status: &s.status}
	defer socket.close()
	changes, stop := s.watch()
	defer stop()
	for patience := s.options.Patience; ; {
		socket.keep(ctx)
		registered := s.Status().Registered
		switch {
		case registered:
			patience = s.options.Patience
		case socket.bound() && s.status.silent(patience):
			patience = min(2*patience, max(longestPatience, s.options.Patience))
			socket.move(ctx)
		}
		pause := s.options.Check
		if registered && socket.bound() && changes != nil {
			pause = s.options.Calm
		}
		if !sleep(ctx, pause, changes) {
			return nil
		}
	}
}

// watch tells of changes in the directory, if the file is to be looked at less
// often. Without a watch, or once the directory is another, the looks remain.
func (s *Server) watch() (<-chan fsnotify.Event, func()) {
	none := func() {}
	if s.options.Calm <= 0 {
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

// sleep is false when the context ended.
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
