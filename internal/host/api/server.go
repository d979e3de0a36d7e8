// Package api is how programs talk to a running host: HTTP with JSON over the
// unix socket ROOT/host.sock. Objects have the paths, the forms and the errors
// of the Kubernetes API, so that programs that read a cluster read a host, too;
// resources that a cluster lacks are below /apis/holdfast.dev/v1. The kernel reports
// who connected. Nothing polls: a watcher sleeps until the store or the journal
// changes.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// The socket's file below the root directory: of a host, and of a host that
// `holdfast run` starts for itself, which others do not find.
const (
	SocketName    = "host.sock"
	RunSocketName = "run.sock"
)

// The limits of a connection.
const (
	maximumBody = 16 << 20
	headerLimit = 10 * time.Second
	bodyLimit   = 30 * time.Second
	// writeLimit is the time a client may take to read an answer.
	writeLimit = 30 * time.Second
	idleLimit  = 2 * time.Minute
	// drainLimit is how long calls in flight are waited for at the end.
	drainLimit = 10 * time.Second
)

// Options of a Server.
type Options struct {
	Store   *store.Store
	Journal *journal.Journal
	Host    Host
	Logger  *slog.Logger
	Version string
	// Members of Group may do everything, members of ReadGroup may read. Without
	// groups, only the owner can use the socket.
	Group, ReadGroup *uint32
	// Pools, if given, returns the state of the pools of the host's own driver.
	Pools func() []Pool
	// Status, if given, is the status page, at statusPath.
	Status http.Handler
}

// Server serves one host.
type Server struct {
	options Options
	mux     *http.ServeMux
	// leaving ends when long answers are to end.
	leaving context.Context // of Serve
	leave   context.CancelFunc
}

// NewServer makes a Server; Serve runs it.
func NewServer(options Options) *Server {
	s := &Server{options: options, mux: http.NewServeMux()}
	s.leaving, s.leave = context.WithCancel(context.Background())
	s.routes()
	return s
}

// Listen makes the socket at a path with the mode that the groups need. The
// server also checks the credentials of every caller.
func Listen(ctx context.Context, path string, options Options) (*unixsocket.Listener, error) {
	listener, err := unixsocket.Listen(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := open(listener.Path(), options); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: let a group in: %w", listener.Path(), err), listener.Close())
	}
	return listener, nil
}

// open lets groups connect. A file has one group only: with two, every user may
// connect, and the server refuses the others.
func open(path string, options Options) error {
	group := options.Group
	switch {
	case options.Group != nil && options.ReadGroup != nil:
		return os.Chmod(path, 0o666) //nolint:gosec // see above
	case options.Group == nil && options.ReadGroup == nil:
		return nil
	case group == nil:
		group = options.ReadGroup
	}
	if err := os.Chown(path, -1, int(*group)); err != nil {
		return err
	}
	return os.Chmod(path, 0o660) //nolint:gosec // the group is to connect
}

// Serve answers until the context ends, and then lets calls in flight end. It
// may be called once. It closes the listener.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	server := &http.Server{
		Handler: http.HandlerFunc(s.handle), ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return base },
		ConnContext:    withConnection,
		ErrorLog:       slog.NewLogLogger(s.options.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(&peerListener{Listener: listener, count: map[uint32]int{}}) }()
	var err error
	select {
	case err = <-ended:
		s.leave()
	case <-ctx.Done():
		s.leave()
		drain, stop := context.WithTimeout(base, drainLimit)
		err = server.Shutdown(drain)
		stop()
		<-ended //nolint:errcheck // it is that the server was shut down
	}
	cancel()
	if closed := server.Close(); err == nil {
		err = closed
	}
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) {
		return nil // calls that did not end within the limit were cancelled
	}
	return err
}

// long is the context of an answer without an end, such as a watch.
func (s *Server) long(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(s.leaving, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// handle answers requests of permitted users and refuses the others.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	// The deadline of the last answer over this connection is over.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	from, err := peerFrom(r.Context())
	if err != nil {
		s.answerError(w, r, refuse(http.StatusForbidden, metav1.StatusReasonForbidden,
			"the credentials of the connection cannot be read: %v", err))
		return
	}
	if text := s.options.refusal(from, r.Method); text != "" {
		s.options.Logger.Warn("a request was refused", "uid", from.uid, "pid", from.pid, "method", r.Method,
			"path", r.URL.Path)
		s.answerError(w, r, refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "%s", text))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maximumBody)
	s.mux.ServeHTTP(w, r)
}

// timeout is the deadline for something that begins now.
func timeout(limit time.Duration) time.Time { return time.Now().Add(limit) }
