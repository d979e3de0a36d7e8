package register

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/connlimit"
	"github.com/holdfast-csi/holdfast/internal/grpcserver"
	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// A socket is named <driver>-reg.sock, and <driver>-reg_<random>.sock after a
// move. A driver's name has no '_', so that the name of a moved socket cannot be
// that of another driver.
const (
	suffix      = "-reg.sock"
	movedBegin  = "-reg_"
	movedEnd    = ".sock"
	movedRandom = 8
)

// socket is the registration's listener. It is bound again after its file was removed.
type socket struct {
	options     Options
	usual, path string
	status      *record

	listener *unixsocket.Listener
	server   *grpcserver.Server // of the current listener
	serving  chan struct{}      // closed when the server has ended
	failing  bool               // the failure has been logged
}

// limits are far above what a kubelet needs, which makes two short calls.
func limits() grpcserver.Limits {
	return grpcserver.Limits{Message: 64 << 10, Calls: 64, CallsOfPeer: 16, Connections: connlimit.Limits{PerPeer: 16, All: 64}}
}

func (s *socket) bound() bool { return s.listener != nil }

func (s *socket) bind(ctx context.Context) error {
	removed, err := s.removeOthers(ctx)
	if err != nil {
		return err
	}
	if removed && !s.waitForKubelet(ctx) {
		return ctx.Err()
	}
	listener, err := unixsocket.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	// Each socket has its own server: a result that the kubelet sends over an old
	// connection concerns the previous socket, not this one.
	s.listener, s.server, s.serving = listener, grpcserver.New(limits()), make(chan struct{})
	registration.RegisterRegistrationServer(s.server, &answers{options: s.options, status: s.status})
	s.status.offer(s.path)
	go func(server *grpcserver.Server, ended chan struct{}) {
		defer close(ended)
		// Serve returns when the listener is closed, here or by Stop.
		_ = server.Serve(listener)
	}(s.server, s.serving)
	s.options.Logger.InfoContext(ctx, "offering the driver for registration", "socket", s.path)
	return nil
}

// keep binds the socket if it is not bound or its file was removed. While another
// process serves the driver's socket, keep leaves it alone: two instances must not
// alternately replace each other's socket.
func (s *socket) keep(ctx context.Context) {
	if s.listener != nil && s.listener.Owns() || ctx.Err() != nil {
		return
	}
	s.close()
	err := s.bind(ctx)
	if err == nil {
		s.failing = false
		return
	}
	if ctx.Err() != nil {
		return
	}
	s.status.fail(err)
	if !s.failing {
		s.failing = true
		s.options.Logger.WarnContext(ctx, "cannot create the registration socket; retrying", "error", err)
	}
}

// move offers the driver under a name for which no kubelet has a backoff.
func (s *socket) move(ctx context.Context) {
	s.options.Logger.InfoContext(ctx, "the kubelet made no call; offering the driver under another name", "socket", s.path)
	s.close()
	if !s.waitForKubelet(ctx) {
		return
	}
	name := s.options.Driver + movedBegin + strings.ToLower(rand.Text()[:movedRandom]) + movedEnd
	moved, err := unixsocket.Path(filepath.Join(s.options.Directory, name))
	if err != nil {
		moved = s.usual // the new path is too long; the old one at least causes a new event
	}
	s.path = moved
	s.keep(ctx)
}

// waitForKubelet waits for MoveDelay, in which the kubelet processes the removal of
// a socket. It returns false if ctx ended first.
func (s *socket) waitForKubelet(ctx context.Context) bool {
	timer := time.NewTimer(s.options.MoveDelay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *socket) close() {
	if s.listener == nil {
		return
	}
	// The file is removed first: the kubelet watches the file.
	if err := s.listener.Close(); err != nil {
		s.options.Logger.Warn("the registration socket was not removed", "error", err)
	}
	s.server.Stop()
	<-s.serving
	s.listener, s.server = nil, nil
	s.status.withdraw()
}

// removeOthers removes the driver's sockets of other names if their processes are
// dead: the kubelet would retry them for ever, or still has them registered. If a
// living process serves one, the error is ErrServed: the kubelet identifies drivers
// by name, so that the end of either of two processes would deregister both.
func (s *socket) removeOthers(ctx context.Context) (removed bool, err error) {
	entries, err := os.ReadDir(s.options.Directory)
	if err != nil {
		return false, nil //nolint:nilerr // Listen creates the directory or returns an error
	}
	for _, entry := range entries {
		path := filepath.Join(s.options.Directory, entry.Name())
		if path == s.path || path != s.usual && !s.isMoved(entry.Name()) {
			continue
		}
		switch err := unixsocket.RemoveStale(ctx, path); {
		case err == nil:
			removed = true
			s.options.Logger.InfoContext(ctx, "removed the registration socket of a dead process", "socket", path)
		case errors.Is(err, unixsocket.ErrServed):
			return removed, err
		default:
			s.options.Logger.WarnContext(ctx, "cannot remove an old registration socket", "error", err)
		}
	}
	return removed, nil
}

func (s *socket) isMoved(name string) bool {
	return strings.HasPrefix(name, s.options.Driver+movedBegin) && strings.HasSuffix(name, movedEnd)
}
