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
	server      *grpc.Server
	options     Options
	usual, path string
	status      *record

	listener *unixsocket.Listener
	serving  chan struct{} // closed when the current listener is served no more
	failing  bool          // said already
}

func (s *socket) bound() bool { return s.listener != nil }

func (s *socket) bind(ctx context.Context) error {
	s.removeLeftovers(ctx)
	listener, err := unixsocket.Listen(ctx, s.path)
	if err != nil {
		return err
	}
	s.listener, s.serving = listener, make(chan struct{})
	s.status.offer(s.path)
	go func(ended chan struct{}) {
		defer close(ended)
		// It ends when the listener is closed, here or by Stop.
		_ = s.server.Serve(listener)
	}(s.serving)
	s.options.Logger.InfoContext(ctx, "offering the driver for registration", "socket", s.path)
	return nil
}

// keep binds the socket, at first and when somebody removed the file. A file
// that another process serves is left to it: two instances must not fight over
// the name.
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
	s.status.fail(err)
	if !s.failing && !errors.Is(err, context.Canceled) {
		s.failing = true
		s.options.Logger.WarnContext(ctx, "there is no registration socket, and none can be made; trying on", "error", err)
	}
}

// move offers the driver under a name that no kubelet has a pause for.
func (s *socket) move(ctx context.Context) {
	s.options.Logger.InfoContext(ctx, "the kubelet is silent; offering the driver under another name", "socket", s.path)
	s.close()
	timer := time.NewTimer(s.options.Settle)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	name := s.options.Driver + movedBegin + strings.ToLower(rand.Text()[:movedRandom]) + movedEnd
	moved, err := unixsocket.Path(filepath.Join(s.options.Directory, name))
	if err != nil {
		moved = s.usual // a path that is too long for a new name helps a little: the event is new
	}
	s.path = moved
	s.keep(ctx)
}

func (s *socket) close() {
	if s.listener == nil {
		return
	}
	s.status.withdraw()
	if err := s.listener.Close(); err != nil {
		s.options.Logger.Warn("the registration socket was not removed", "error", err)
	}
	<-s.serving
	s.listener = nil
}

// removeLeftovers removes moved sockets of processes that are dead: the kubelet
// would try them for ever.
func (s *socket) removeLeftovers(ctx context.Context) {
	entries, err := os.ReadDir(s.options.Directory)
	if err != nil {
		return // Listen makes the directory, or says why not
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, s.options.Driver+movedBegin) || !strings.HasSuffix(name, movedEnd) {
			continue
		}
		path := filepath.Join(s.options.Directory, name)
		switch err := unixsocket.RemoveStale(ctx, path); {
		case err == nil:
			s.options.Logger.InfoContext(ctx, "removed the registration socket of a dead process", "socket", path)
		case !errors.Is(err, unixsocket.ErrServed):
			s.options.Logger.WarnContext(ctx, "cannot remove an old registration socket", "error", err)
		}
	}
}
