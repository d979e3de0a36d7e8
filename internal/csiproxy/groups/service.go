package groups

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
)

// group is one part of the host, with its own pipes and versions. H is the part's
// interface in package api.
type group[H any] struct {
	Name    string // in pipes: disk
	Service string // in gRPC: Disk
	Part    func(api.Host) H
}

// Version returns one of the group's versions with its calls. Versions that share calls
// share code and messages: the wire has the names of the service and its calls, not those
// of messages.
func (g group[H]) Version(name string, calls ...[]call[H]) api.Definition {
	desc := g.desc(name, slices.Concat(calls...))
	return api.Definition{
		Group:   g.Name,
		Version: name,
		Register: func(registrar grpc.ServiceRegistrar, host api.Host) {
			registrar.RegisterService(desc, g.Part(host))
		},
	}
}

// desc describes the service as protoc would generate it, in the proto package with the
// name of the version.
func (g group[H]) desc(versionName string, calls []call[H]) *grpc.ServiceDesc {
	desc := &grpc.ServiceDesc{
		ServiceName: versionName + "." + g.Service,
		HandlerType: (*H)(nil),
	}
	for _, c := range calls {
		desc.Methods = append(desc.Methods, c.desc(desc.ServiceName))
	}
	return desc
}

// call is one RPC, which may be in several versions.
type call[H any] struct {
	name    string
	request func() any
	answer  func(ctx context.Context, part H, request any) (any, error)
}

// unary is a call with one request and one response. Its errors are those of the host, or
// wrap a sentinel of package backend.
func unary[H, Req, Resp any](name string, do func(context.Context, H, *Req) (*Resp, error)) call[H] {
	return call[H]{
		name:    name,
		request: func() any { return new(Req) },
		answer: func(ctx context.Context, part H, request any) (any, error) {
			typed, ok := request.(*Req)
			if !ok {
				return nil, fmt.Errorf("%s was given a %T instead of a %T", name, request, typed)
			}
			response, err := do(ctx, part, typed)
			if err != nil {
				return nil, err // a nil pointer in an interface would not be nil
			}
			return response, nil
		},
	}
}

// older has the messages of a proto whose calls are served by those of a newer proto.
type older[H any] struct {
	proto protoreflect.FileDescriptor
	newer []call[H]
}

// call returns the older call of a name, which the newer call of the name served
// serves. renamed maps the fields of request and response to the newer names.
func (o older[H]) call(name, served string, renamed convert.Names) call[H] {
	method := o.proto.Services().Get(0).Methods().ByName(protoreflect.Name(name))
	newer := o.newer[slices.IndexFunc(o.newer, func(c call[H]) bool { return c.name == served })]
	return call[H]{
		name:    name,
		request: func() any { return convert.NewMessage(method.Input()) },
		answer: func(ctx context.Context, part H, request any) (any, error) {
			//nolint:forcetypeassert // requests and responses are messages
			converted, from := newer.request().(proto.Message), request.(proto.Message)
			if err := convert.Message(from, converted, renamed); err != nil {
				return nil, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
			}
			answer, err := newer.answer(ctx, part, converted)
			if err != nil {
				return nil, err
			}
			response := convert.NewMessage(method.Output())
			//nolint:forcetypeassert // as above
			return response, convert.Message(answer.(proto.Message), response, renamed.Inverse())
		},
	}
}

// same returns the calls that differ from the newer ones of the same name only in the form
// of fields.
func (o older[H]) same(names ...string) (calls []call[H]) {
	for _, name := range names {
		calls = append(calls, o.call(name, name, nil))
	}
	return calls
}

func (c call[H]) desc(service string) grpc.MethodDesc {
	return convert.Method(service, c.name, c.request, func(ctx context.Context, server, request any) (any, error) {
		part, ok := server.(H)
		if !ok {
			return nil, fmt.Errorf("%w: this host does not serve /%s/%s", backend.ErrUnsupported, service, c.name)
		}
		return c.answer(ctx, part, request)
	})
}
