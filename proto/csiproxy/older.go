package csiproxy

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/compose"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/convert"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

// older is a version of the API that v1 serves: its requests are converted to those
// of v1, and the responses of v1 to its own, field by field of the same name.
type older struct {
	version string
	service protoreflect.ServiceDescriptor
	// rules has the methods whose conversion needs more than names.
	rules map[protoreflect.Name]rule
}

// rule has the differences of a method from that of v1.
type rule struct {
	// required is a text of the request that may be empty only in v1.
	required protoreflect.Name
	// renamed maps fields of the request and the response to their names in v1.
	renamed convert.Names
	// request completes a request of v1, and response a response of the version:
	// fields that have another form.
	request  func(from, to proto.Message) error
	response func(from, to proto.Message)
	// serve serves the request of v1 in place of v1's own method, if it is set.
	serve func(ctx context.Context, host api.Host, operations *compose.Operations, request proto.Message) (proto.Message,
		error)
}

func (o older) definition(operations *compose.Operations) api.Definition {
	return api.Definition{Version: o.version, Register: func(registrar grpc.ServiceRegistrar, host api.Host) {
		desc := &grpc.ServiceDesc{ServiceName: string(o.service.FullName()), HandlerType: (*v1.CSIProxyServiceServer)(nil)}
		for i := range o.service.Methods().Len() {
			desc.Methods = append(desc.Methods, o.method(o.service.Methods().Get(i), host, operations))
		}
		registrar.RegisterService(desc, v1.NewServer(host, operations))
	}}
}

// method describes the method as protoc would generate it, with the conversions.
func (o older) method(
	method protoreflect.MethodDescriptor, host api.Host, operations *compose.Operations,
) grpc.MethodDesc {
	request := func() any { return convert.NewMessage(method.Input()) }
	answer := func(ctx context.Context, server, request any) (any, error) {
		typed, ok := request.(proto.Message)
		if !ok {
			return nil, fmt.Errorf("%s was given a %T, which is not a message", method.FullName(), request)
		}
		return o.answer(ctx, method, server, host, operations, typed)
	}
	return convert.Method(string(o.service.FullName()), string(method.Name()), request, answer)
}

func (o older) answer(
	ctx context.Context, method protoreflect.MethodDescriptor,
	server any, host api.Host, operations *compose.Operations, request proto.Message,
) (any, error) {
	r := o.rules[method.Name()]
	stable, err := o.toStable(method, request)
	if err != nil {
		return nil, err
	}
	var response any
	if r.serve != nil {
		response, err = r.serve(ctx, host, operations, stable)
	} else {
		response, err = callStable(ctx, method.Name(), server, stable)
	}
	if err != nil {
		return nil, err
	}
	return o.fromStable(method, response.(proto.Message)) //nolint:forcetypeassert // v1 and rules return messages
}

// toStable converts a request to v1's.
func (o older) toStable(method protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	r := o.rules[method.Name()]
	if r.required != "" {
		if field := method.Input().Fields().ByName(r.required); request.ProtoReflect().Get(field).String() == "" {
			return nil, fmt.Errorf("%w: %s is missing", backend.ErrInvalid, r.required)
		}
	}
	stable := convert.NewMessage(stableMethods().ByName(method.Name()).Input())
	if err := convert.Message(request, stable, r.renamed); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrInvalid, err)
	}
	if r.request != nil {
		if err := r.request(request, stable); err != nil {
			return nil, err
		}
	}
	return stable, nil
}

// fromStable converts a response of v1. Fields that the version lacks are left out.
func (o older) fromStable(method protoreflect.MethodDescriptor, stable proto.Message) (proto.Message, error) {
	r := o.rules[method.Name()]
	response := convert.NewMessage(method.Output())
	if err := convert.Message(stable, response, r.renamed.Inverse()); err != nil {
		return nil, fmt.Errorf("convert the response of %s: %w", method.Name(), err)
	}
	if r.response != nil {
		r.response(stable, response)
	}
	return response, nil
}

func stableMethods() protoreflect.MethodDescriptors {
	return v1.File_proto_csiproxy_v1_api_proto.Services().Get(0).Methods()
}

// callStable calls a method of v1 by its name.
func callStable(ctx context.Context, name protoreflect.Name, server any, request proto.Message) (any, error) {
	for _, method := range v1.CSIProxyService_ServiceDesc.Methods {
		if method.MethodName == string(name) {
			decode := func(message any) error {
				proto.Merge(message.(proto.Message), request) //nolint:forcetypeassert // generated code decodes messages
				return nil
			}
			return method.Handler(server, ctx, decode, nil)
		}
	}
	return nil, fmt.Errorf("v1 has no method %s", name)
}
