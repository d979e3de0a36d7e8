// Package api makes a gRPC service of each version of a group. A version is a
// name and a list of calls, so versions that share calls share code and messages:
// names of messages do not travel, those of the service and its calls do.
package api

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/hub"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/version"
)

// Group is one part of the host, with pipes and versions of its own. H is the
// part's interface in the hub.
type Group[H any] struct {
	Name    string // in pipes: disk
	Service string // in gRPC: Disk
	Part    func(hub.Host) H
}

// Version is one of the group's versions with the calls that it has.
func (g Group[H]) Version(name string, calls ...[]Call[H]) version.Definition {
	desc := g.desc(name, slices.Concat(calls...))
	return version.Definition{
		Group:   g.Name,
		Version: name,
		Register: func(registrar grpc.ServiceRegistrar, host hub.Host) {
			registrar.RegisterService(desc, g.Part(host))
		},
	}
}

// desc is what protoc would generate for the service in the proto package that is
// named like the version.
func (g Group[H]) desc(versionName string, calls []Call[H]) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{
		ServiceName: versionName + "." + g.Service,
		HandlerType: (*H)(nil),
	}
	for _, call := range calls {
		desc.Methods = append(desc.Methods, call.desc(desc.ServiceName))
	}
	return desc
}

// Call is one RPC, in whichever versions it is.
type Call[H any] struct {
	name    string
	request func() any
	answer  func(ctx context.Context, part H, request any) (any, error)
}

// Unary is a call of one request and one response. Its errors are those of the
// host or wrap a sentinel of package backend.
func Unary[H, Req, Resp any](name string, call func(context.Context, H, *Req) (*Resp, error)) Call[H] {
	return Call[H]{
		name:    name,
		request: func() any { return new(Req) },
		answer: func(ctx context.Context, part H, request any) (any, error) {
			typed, ok := request.(*Req)
			if !ok {
				return nil, fmt.Errorf("%s was given a %T instead of a %T", name, request, typed)
			}
			response, err := call(ctx, part, typed)
			if err != nil {
				return nil, err // and no response that is not nil and yet a nil pointer
			}
			return response, nil
		},
	}
}

func (c Call[H]) desc(service string) grpc.MethodDesc {
	fullMethod := "/" + service + "/" + c.name
	handler := func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		request := c.request()
		if err := decode(request); err != nil {
			return nil, err
		}
		answer := func(ctx context.Context, request any) (any, error) {
			part, ok := server.(H)
			if !ok {
				return nil, fmt.Errorf("%w: this host has nothing that serves %s", backend.ErrUnsupported, fullMethod)
			}
			return c.answer(ctx, part, request)
		}
		if interceptor == nil {
			return answer(ctx, request)
		}
		return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: server, FullMethod: fullMethod}, answer)
	}
	return grpc.MethodDesc{MethodName: c.name, Handler: handler}
}
