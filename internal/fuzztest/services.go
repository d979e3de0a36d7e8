package fuzztest

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Services is a grpc.ServiceRegistrar that keeps the methods of services, to call them
// with the bytes of a request through a server's interceptor, without a connection.
type Services struct {
	Interceptor grpc.UnaryServerInterceptor
	Methods     []Method
}

// Method is a method of a service.
type Method struct {
	Name  string // /SERVICE/METHOD
	owner *Services
	impl  any
	desc  grpc.MethodDesc
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Services) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, method := range desc.Methods {
		s.Methods = append(s.Methods, Method{"/" + desc.ServiceName + "/" + method.MethodName, s, impl, method})
	}
}

// Call decodes a request as a gRPC server does, and answers it. read is false if the
// bytes are no message of the method's type: the method was not called.
func (m Method) Call(ctx context.Context, wire []byte) (response proto.Message, read bool, err error) {
	decode := func(message any) error {
		target, ok := message.(proto.Message)
		if !ok {
			return fmt.Errorf("%s reads a %T, which is not a protobuf message", m.Name, message)
		}
		err := proto.Unmarshal(wire, target)
		read = err == nil
		return err
	}
	ctx = grpc.NewContextWithServerTransportStream(ctx, stream(m.Name))
	answer, err := m.desc.Handler(m.impl, ctx, decode, m.owner.Interceptor)
	response, _ = answer.(proto.Message)
	return response, read, err
}

// stream is the transport of a call; headers and trailers are dropped.
type stream string

func (s stream) Method() string             { return string(s) }
func (stream) SetHeader(metadata.MD) error  { return nil }
func (stream) SendHeader(metadata.MD) error { return nil }
func (stream) SetTrailer(metadata.MD) error { return nil }
