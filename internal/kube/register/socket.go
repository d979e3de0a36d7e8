package register

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/holdfast-csi/holdfast/internal/unixsocket"
)

// suffix makes the usual name, <driver>-reg.sock. A moved socket is
// <driver>-reg_<random>.sock: no driver's name has a '_', so that no other
// driver's socket can be meant.
const (
	suffix      = "-reg.sock"
	movedBegin  = "-reg_"
	movedEnd    = ".sock"
	movedRandom = 8
)

// socket is the registration's listener, bound anew when its file is gone.
type socket struct {
	options     Options
	usual, path string
	status      *record

	listener *unixsocket.Listener
	server   *grpc.Server  // of the current listener
	serving  chan struct{} // closed when that is served no more
	failing  bool          // said already
}

func (s *socket) bound() bool { return s.listener != nil }

func (s *socket) bind(ctx context.Context) error {
	removed, err := s.lookForOthers(ctx)
	if err != nil {
		return err
	}
	if removed && !s.settle(ctx) {
		return ctx.Err()
	}
	listener, err := unixsocket.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	// A server for each socket: what a kubelet still has to say of the socket
	// before, over a connection that it keeps, says nothing about this one.
	s.listener, s.server, s.serving = listener, grpc.NewServer(), make(chan struct{})
	registration.RegisterRegistrationServer(s.server, &answers{options: s.options, status: s.status})
	s.status.offer(s.path)
	go func(server *grpc.Server, ended chan struct{}) {
		defer close(ended)
		// It ends when the listener is closed, here or by Stop.
		_ = server.Serve(listener)
	}(s.server, s.serving)
	s.options.Logger.InfoContext(ctx, "offering the driver for registration", "socket", s.path)
	return nil
}

// keep binds the socket, at first and when somebody removed the file. While
// another process serves the driver's socket it is left to that: two instances
// must not fight over the name.
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
		s.options.Logger.WarnContext(ctx, "there is no registration socket, and none can be made; trying on", "error", err)
	}
}

// move offers the driver under a name that no kubelet has a pause for.
func (s *socket) move(ctx context.Context) {
	s.options.Logger.InfoContext(ctx, "the kubelet is silent; offering the driver under another name", "socket", s.path)
	s.close()
	if !s.settle(ctx) {
		return
	}
	name := s.options.Driver + movedBegin + strings.ToLower(rand.Text()[:movedRandom]) + movedEnd
	moved, err := unixsocket.Path(filepath.Join(s.options.Directory, name))
	if err != nil {
		moved = s.usual // a path that is too long for a new name helps a little: the event is new
	}
	s.path = moved
	s.keep(ctx)
}

// settle waits until the kubelet has dealt with the end of a socket; false when
// ctx ended first.
func (s *socket) settle(ctx context.Context) bool {
	timer := time.NewTimer(s.options.Settle)
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
	// The file goes first: its removal is what tells the kubelet.
	if err := s.listener.Close(); err != nil {
		s.options.Logger.Warn("the registration socket was not removed", "error", err)
	}
	s.server.Stop()
	<-s.serving
	s.listener, s.server = nil, nil
	s.status.withdraw()
}

// lookForOthers sees to the driver's sockets of other names. One that a living
// process serves is an error that is ErrServed: the kubelet knows drivers by
// name, so of two processes at once the end of either would deregister both.
// Those of dead processes are removed: the kubelet would try them for ever, or
// has them registered still.
func (s *socket) lookForOthers(ctx context.Context) (removed bool, err error) {
	entries, err := os.ReadDir(s.options.Directory)
	if err != nil {
		return false, nil //nolint:nilerr // Listen makes the directory, or says why not
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
