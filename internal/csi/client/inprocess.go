package client

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// InProcess connects a Client to services of this process. A call is a function
// call through the services' interceptor. It returns the same codes as a remote call,
// without a socket or encoding. Requests and responses are copied, so that neither
// side can change the other's messages.
type InProcess struct {
	interceptor grpc.UnaryServerInterceptor

	mu      sync.RWMutex
	methods map[string]method
}

type method struct {
	service any
	handle  grpc.MethodHandler
}

// NewInProcess makes a connection with no services. The interceptor may be nil.
func NewInProcess(interceptor grpc.UnaryServerInterceptor) *InProcess {
	return &InProcess{interceptor: interceptor, methods: map[string]method{}}
}

// RegisterService implements grpc.ServiceRegistrar, so that
// csi.RegisterControllerServer and the like accept an InProcess as they accept a server.
func (p *InProcess) RegisterService(description *grpc.ServiceDesc, service any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range description.Methods {
		p.methods["/"+description.ServiceName+"/"+m.MethodName] = method{service: service, handle: m.Handler}
	}
}

// Invoke implements grpc.ClientConnInterface. A call returns as soon as its context
// ends; the service's handler may still run, as in a remote process.
func (p *InProcess) Invoke(ctx context.Context, name string, request, answer any, options ...grpc.CallOption) error {
	p.mu.RLock()
	called, found := p.methods[name]
	p.mu.RUnlock()
	if !found {
		return status.Errorf(codes.Unimplemented, "unknown method %s", name[strings.LastIndexByte(name, '/')+1:])
	}
	type result struct {
		answer any
		err    error
	}
	stream := &answerStream{method: name}
	ctx = grpc.NewContextWithServerTransportStream(ctx, stream)
	done := make(chan result, 1)
	go func() {
		got, err := called.handle(called.service, ctx, copyInto(request), p.interceptor)
		done <- result{got, err}
	}()
	select {
	case r := <-done:
		for _, option := range options {
			if trailer, ok := option.(grpc.TrailerCallOption); ok {
				*trailer.TrailerAddr = stream.trailer
			}
		}
		if r.err != nil {
			return toStatus(r.err)
		}
		return copyInto(r.answer)(answer)
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// answerStream takes the trailer of an answer; headers are not used.
type answerStream struct {
	method  string
	trailer metadata.MD
}

func (s *answerStream) Method() string             { return s.method }
func (*answerStream) SetHeader(metadata.MD) error  { return nil }
func (*answerStream) SendHeader(metadata.MD) error { return nil }
func (s *answerStream) SetTrailer(m metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, m)
	return nil
}

// NewStream implements grpc.ClientConnInterface. It always fails: the CSI services
// that are called here have no streams.
func (p *InProcess) NewStream(
	context.Context, *grpc.StreamDesc, string, ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "streams are not served within the process")
}

func copyInto(from any) func(any) error {
	return func(to any) error {
		source, ok := from.(proto.Message)
		target, also := to.(proto.Message)
		if !ok || !also {
			return fmt.Errorf("copy %T to %T: not protobuf messages", from, to)
		}
		proto.Merge(target, source)
		return nil
	}
}

// toStatus returns the error that a remote caller would get.
func toStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
