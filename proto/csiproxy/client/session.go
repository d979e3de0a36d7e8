package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

const (
	// connectLimit bounds the time for a connection with HTTP/2's preface: the process
	// that serves the pipe may not answer.
	connectLimit = 5 * time.Second
	// answerLimit bounds the time for a proxy to identify itself. Calls queue in a busy
	// proxy.
	answerLimit = time.Minute
	// firstRetry and lastRetry are between attempts to connect again.
	firstRetry, lastRetry = 50 * time.Millisecond, 2 * time.Second
)

// session is a connection to one pipe, thus with one version.
type session struct {
	version, pipe string
	conn          *grpc.ClientConn
	speak         dialect
	// dialError is the error of the last attempt to connect.
	dialError atomic.Pointer[error]
	// broken counts the connections that have ended, such as with the proxy's process.
	broken atomic.Int64

	mu      sync.Mutex
	users   int
	retired bool
}

// open prepares a session. gRPC connects at the first call.
func (f finder) open(version string) (*session, error) {
	s := &session{version: version, pipe: pipeOf(version), speak: dialects()[version]}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := f.dial(ctx, s.pipe)
		s.dialError.Store(&err)
		if err != nil {
			return nil, err
		}
		return watched{conn, sync.OnceFunc(func() { s.broken.Add(1) })}, nil
	}
	conn, err := grpc.NewClient("passthrough:///csi-proxy-"+version,
		grpc.WithContextDialer(dial),
		// The pipe's security descriptor says who may connect; there is no network.
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 2, Jitter: 0.2, MaxDelay: lastRetry},
			MinConnectTimeout: connectLimit,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", s.pipe, err)
	}
	s.conn = conn
	return s, nil
}

// watched calls a function at the first failure to read or write.
type watched struct {
	net.Conn
	failed func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.failed()
	}
	return n, err
}

func (w watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		w.failed()
	}
	return n, err
}

// failedDial is why the last attempt to connect failed, nil if it did not.
func (s *session) failedDial() error {
	if err := s.dialError.Load(); err != nil {
		return *err
	}
	return nil
}

// lost reports whether the pipe no longer exists: the proxy may serve another version now.
func (s *session) lost() bool { return errors.Is(s.failedDial(), fs.ErrNotExist) }

func (s *session) use() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *session) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.closeIfDone()
}

// retire closes the connection when the last call on it has ended: a proxy that
// stops lets calls in flight end although its pipe is gone.
func (s *session) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	s.closeIfDone()
}

// closeIfDone requires the lock. Closing twice is harmless.
func (s *session) closeIfDone() {
	if s.retired && s.users == 0 {
		_ = s.conn.Close()
	}
}

func (s *session) call(ctx context.Context, method string, request, response any, options []grpc.CallOption) error {
	return s.speak(ctx, call{session: s, method: methodName(method), request: request, response: response, options: options})
}

// repeated makes a call, and makes it once more if the connection has ended meanwhile: the
// proxy may have crashed or been replaced, and gRPC reports this only to the call that it
// interrupts.
func (s *session) repeated(ctx context.Context, method string, request, response any, options []grpc.CallOption) error {
	for attempt := 1; ; attempt++ {
		before := s.broken.Load()
		err := s.call(ctx, method, request, response, options)
		switch {
		case !cutOff(err) || s.broken.Load() == before:
			return err
		case attempt == 2:
			return s.unreachable(err)
		}
	}
}

// cutOff reports whether an error can be the connection's rather than the proxy's.
func cutOff(err error) bool { return status.Code(err) == codes.Unavailable }

// verify checks that csi-proxy serves the pipe: only csi-proxy has the method and rejects
// the empty path.
func (s *session) verify(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	err := s.call(limited, v1.CSIProxyService_Mkdir_FullMethodName, &v1.MkdirRequest{}, &v1.MkdirResponse{}, nil)
	switch status.Code(err) {
	case codes.OK:
		return fmt.Errorf("%w: the process that serves %s accepts an empty path", ErrServer, s.pipe)
	case codes.Unimplemented:
		return fmt.Errorf("%w: the process that serves %s lacks the service: %s", ErrServer, s.pipe,
			status.Convert(err).Message())
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for csi-proxy to answer on %s: %w", s.pipe, ctx.Err())
		}
		return s.unreachable(err)
	}
	return nil
}

// unreachable returns the reason why no proxy has answered.
func (s *session) unreachable(err error) error {
	switch dialError := s.failedDial(); {
	case dialError == nil:
		return fmt.Errorf("%w: no proxy answers on %s: %w", ErrNoProxy, s.pipe, err)
	case errors.Is(dialError, fs.ErrPermission), errors.Is(dialError, ErrServer):
		return fmt.Errorf("connecting to csi-proxy on %s: %w", s.pipe, dialError)
	default:
		return fmt.Errorf("%w: connecting on %s: %w", ErrNoProxy, s.pipe, dialError)
	}
}
