package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
	"github.com/holdfast-csi/holdfast/internal/grpcserver/peertest"
)

// TestMain also checks that no goroutine remains after the tests, except the one in
// which go-winio waits for all pipes of the process.
func TestMain(m *testing.M) {
	peertest.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Microsoft/go-winio.ioCompletionProcessor"))
}

// operation is the operation of a test's call.
type operation func(ctx context.Context, text string) (string, error)

// echo is an API of one RPC, which takes a text and gives one.
func echo(group, name string, do operation) api.Definition {
	handler := func(_ any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		request := &wrapperspb.StringValue{}
		if err := decode(request); err != nil {
			return nil, err
		}
		call := func(ctx context.Context, request any) (any, error) {
			answer, err := do(ctx, request.(*wrapperspb.StringValue).GetValue())
			if err != nil {
				return nil, err
			}
			return wrapperspb.String(answer), nil
		}
		return intercept(ctx, request, &grpc.UnaryServerInfo{FullMethod: "/" + name + ".Test/Echo"}, call)
	}
	description := grpc.ServiceDesc{
		ServiceName: name + ".Test", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: handler}},
	}
	return api.Definition{Group: group, Version: name, Register: func(registrar grpc.ServiceRegistrar, _ api.Host) {
		registrar.RegisterService(&description, struct{}{})
	}}
}

func same(_ context.Context, text string) (string, error) { return text, nil }

// call makes one call on a connection.
func call(ctx context.Context, connection *grpc.ClientConn, name, text string) (string, error) {
	answer := &wrapperspb.StringValue{}
	err := connection.Invoke(ctx, "/"+name+".Test/Echo", wrapperspb.String(text), answer)
	return answer.GetValue(), err
}

// dialer opens pipes.
type dialer func(ctx context.Context, pipe string) (net.Conn, error)

// connect is a gRPC client of a pipe.
func (d dialer) connect(t *testing.T, pipe string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+pipe, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return d(ctx, pipe) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// quick are limits for tests.
func quick() server.Limits {
	return server.Limits{
		Message: 64 << 10, Call: 5 * time.Second, Preface: 5 * time.Second, Drain: 5 * time.Second,
		RetryFirst: 2 * time.Millisecond, RetryMost: 10 * time.Millisecond,
	}
}

// record is a log that a test reads.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

func (r *record) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// running is a server that serves, and how it is ended.
type running struct {
	*server.Server
	log *record
	end func() error
}

// start runs a server until the end of the test, or until end is called.
func start(t *testing.T, o server.Options) *running {
	t.Helper()
	r := &running{log: &record{}}
	if o.Logger == nil {
		o.Logger = r.log.logger()
	}
	if o.Limits == (server.Limits{}) {
		o.Limits = quick()
	}
	made, err := server.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Server = made
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- made.Run(ctx) }()
	r.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = r.end() })
	select {
	case <-made.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the server does not get ready")
	}
	return r
}

// states are those of the pipes, with the common beginning of their names left out.
func (r *running) states() map[string]server.State {
	states := map[string]server.State{}
	for _, status := range r.Pipes() {
		states[strings.TrimPrefix(status.Pipe, api.PipePrefix)] = status.State
	}
	return states
}

// until waits for something to become true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come true", what)
		}
	}
}

var errBroken = errors.New("the pipe is broken")
