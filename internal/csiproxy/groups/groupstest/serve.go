package groupstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Server is one version of a group, served as on its pipe, with a client that sends
// and receives bytes instead of messages.
type Server struct {
	// Service is the name in gRPC, and Methods those of its calls.
	Service string
	Methods []string

	client *grpc.ClientConn
	mu     sync.Mutex
	last   outcome
}

// outcome has the last call's result, as an interceptor saw it.
type outcome struct {
	method  string
	request any
	err     error
}

// Serve starts a Server that stops at the end of the test.
func Serve(t *testing.T, definition api.Definition, host api.Host) *Server {
	t.Helper()
	s := &Server{}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.watch))
	definition.Register(server, host)
	for name, info := range server.GetServiceInfo() {
		s.Service = name
		for _, method := range info.Methods {
			s.Methods = append(s.Methods, method.Name)
		}
	}
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	client, err := grpc.NewClient("passthrough:///"+definition.Pipe(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s.client = client
	return s
}

func (s *Server) watch(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	response, err := handle(ctx, request)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = outcome{method: info.FullMethod, request: request, err: err}
	return response, err
}

// Call sends the bytes of a request and returns those of the response. The error is
// the one that a server's interceptors see, before it becomes a status.
func (s *Server) Call(t *testing.T, method string, request []byte) ([]byte, error) {
	t.Helper()
	full := "/" + s.Service + "/" + method
	s.mu.Lock()
	s.last = outcome{}
	s.mu.Unlock()
	var response []byte
	failure := s.client.Invoke(t.Context(), full, &request, &response)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.method == "" {
		return nil, fmt.Errorf("the call reached no handler: %w", failure)
	}
	if s.last.method != full {
		t.Errorf("%s came to interceptors as %s", full, s.last.method)
	}
	if (failure == nil) != (s.last.err == nil) {
		t.Errorf("%s: the client saw %v, the server %v", full, failure, s.last.err)
	}
	return response, s.last.err
}

// Name returns the common name of the version: disk v1beta2.
func Name(definition api.Definition) string {
	return strings.TrimSpace(definition.Group + " " + definition.Version)
}

// raw is a codec of messages that are bytes already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(message any) ([]byte, error) {
	if data, ok := message.(*[]byte); ok {
		return *data, nil
	}
	return nil, errors.New("not bytes")
}

func (raw) Unmarshal(data []byte, message any) error {
	if target, ok := message.(*[]byte); ok {
		*target = append([]byte{}, data...)
		return nil
	}
	return errors.New("not bytes")
}
