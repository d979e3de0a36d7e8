// Package register is the plugin side of the kubelet's plugin registration: it
// serves pluginregistration.Registration on a socket in the kubelet's registry
// directory, in the driver's own process. Whoever watches the directory (a
// kubelet, or Holdfast's host) learns from it where the CSI socket is. It knows
// nothing of CSI itself, and it never gives up: a restarted kubelet asks again.
package register

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

const (
	// version is what kubelets expect of a CSI plugin. It is the version of the
	// registration, not that of CSI: the highest must have major 1.
	version = "1.0.0"
	// defaultCheck is how often the own socket file is looked at. A watch on the
	// directory would be lost with the directory; a look costs microseconds.
	defaultCheck = time.Second
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
}

// Server registers one driver.
type Server struct {
	options Options
	path    string
}

// New prepares a registration; nothing is touched before Run.
func New(o Options) (*Server, error) {
	path, err := unixsocket.Path(filepath.Join(o.Directory, o.Driver+"-reg.sock"))
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	if o.Check <= 0 {
		o.Check = defaultCheck
	}
	o.Logger = o.Logger.With("component", "registration", "driver", o.Driver)
	return &Server{options: o, path: path}, nil
}

// Run serves the registration socket until ctx ends, and removes its file then
// unless somebody else has taken the name. It fails only when the socket
// cannot be bound at the start.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &answers{options: s.options})
	socket := &socket{server: server, path: s.path, log: s.options.Logger}
	if err := socket.bind(ctx); err != nil {
		return fmt.Errorf("registration: %w", err)
	}
	// The file goes first: its removal is what tells the kubelet.
	defer server.Stop()
	defer socket.close()
	tick := time.NewTicker(s.options.Check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			socket.keep(ctx)
		}
	}
}

// socket is the registration's listener, bound anew when its file is gone.
type socket struct {
	server   *grpc.Server
	path     string
	log      *slog.Logger
	listener *unixsocket.Listener
	failing  bool
	serving  chan struct{} // closed when the current listener is served no more
}

func (s *socket) bind(ctx context.Context) error {
	listener, err := unixsocket.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	s.listener, s.serving = listener, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		// It ends when the listener is closed, here or by Stop.
		_ = s.server.Serve(listener)
	}(s.serving)
	s.log.Info("offering the driver for registration", "socket", s.path)
	return nil
}

// keep binds anew when somebody removed the file. A file that another process
// serves is left to it: two instances must not fight over the name.
func (s *socket) keep(ctx context.Context) {
	if s.listener != nil && s.listener.Owns() {
		return
	}
	s.close()
	err := s.bind(ctx)
	switch {
	case err == nil:
		s.failing = false
	case errors.Is(err, context.Canceled), s.failing: // ending, or said before
	default:
		s.failing = true
		s.log.Warn("the registration socket is gone and cannot be made again; trying on", "error", err)
	}
}

func (s *socket) close() {
	if s.listener == nil {
		return
	}
	if err := s.listener.Close(); err != nil {
		s.log.Warn("the registration socket was not removed", "error", err)
	}
	<-s.serving
	s.listener = nil
}

// answers is the service the kubelet calls.
type answers struct {
	registration.UnimplementedRegistrationServer
	options Options
}

func (a *answers) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: a.options.Driver,
		Endpoint: a.options.Endpoint, SupportedVersions: []string{version},
	}, nil
}

// NotifyRegistrationStatus only tells people: after a refusal the kubelet
// itself tries again, so ending would lose the registration for good.
func (a *answers) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		a.options.Logger.Info("registered")
	} else {
		a.options.Logger.Warn("registration refused; the kubelet will try again", "error", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}
